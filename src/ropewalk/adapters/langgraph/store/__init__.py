"""`RopewalkStore`: LangGraph's long-term memory."""

from __future__ import annotations
