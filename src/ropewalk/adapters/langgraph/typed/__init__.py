"""Typed state for graphs that keep LangGraph's own checkpointer."""

from __future__ import annotations
