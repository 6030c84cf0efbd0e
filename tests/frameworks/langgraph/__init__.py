"""Tests beside LangGraph."""
