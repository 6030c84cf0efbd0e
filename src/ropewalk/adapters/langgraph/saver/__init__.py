"""The checkpointer: threads of LangGraph in a store, of which only what changed is stored."""
