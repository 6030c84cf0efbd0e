"""Functions whose calls are steps of a state, and the events that they leave."""
