"""A mapping that remembers."""
