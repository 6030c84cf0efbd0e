"""`CoherentStore`: LangGraph's store for agents that share artifacts."""
