"""Taking over the databases of LangGraph's own savers, and giving them back."""

from __future__ import annotations
