"""Import from and export to the databases of LangGraph's own savers."""

from __future__ import annotations
