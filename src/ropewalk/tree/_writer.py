from ropewalk.tree._builder import reachable
from ropewalk.tree.writer import TreeWriter, Written

__all__ = ["TreeWriter", "Written", "reachable"]
