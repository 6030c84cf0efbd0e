from ropewalk.tree.embed import MAX_LARGE_DEPTH, Embedder, retry_if_changed

__all__ = ["MAX_LARGE_DEPTH", "Embedder", "retry_if_changed"]
