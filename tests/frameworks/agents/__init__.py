"""Frameworks whose pins agree: they share an environment."""
