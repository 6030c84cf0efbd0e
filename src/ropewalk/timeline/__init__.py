"""An agent's named history: save each step, go back, branch, merge, recover."""

from __future__ import annotations

from ropewalk.timeline._checkpoint import Checkpoint, CheckpointStatus
from ropewalk.timeline._comparing import Diff
from ropewalk.timeline._drawing import TreeLine
from ropewalk.timeline._past import Past
from ropewalk.timeline._steps import (
    Middleware,
    checkpoint_context,
    forget_agents,
    get_agent,
    register_agent,
    safe_execute,
    step,
)
from ropewalk.timeline._timeline import BranchInfo, Timeline

__all__ = [
    "BranchInfo",
    "Checkpoint",
    "CheckpointStatus",
    "Diff",
    "Middleware",
    "Past",
    "Timeline",
    "TreeLine",
    "checkpoint_context",
    "forget_agents",
    "get_agent",
    "register_agent",
    "safe_execute",
    "step",
]
