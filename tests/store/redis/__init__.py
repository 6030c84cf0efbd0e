"""The engine on Redis."""
