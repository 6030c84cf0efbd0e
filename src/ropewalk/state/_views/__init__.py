"""A state as text, within a budget."""
