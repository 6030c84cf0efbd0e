"""Typed state for frameworks that keep their own checkpoints."""
