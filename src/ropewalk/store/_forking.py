"""The old place of `ropewalk.store.forking`, until the engines are rebuilt."""

from ropewalk.store.forking import freed_after_fork, whole_after_fork

__all__ = ["freed_after_fork", "whole_after_fork"]
