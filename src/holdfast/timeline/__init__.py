"""An agent's named history: save each step, go back, branch, merge, recover."""

from __future__ import annotations

from holdfast.timeline._checkpoint import Checkpoint, CheckpointStatus
from holdfast.timeline._comparing import Diff
from holdfast.timeline._drawing import TreeLine
from holdfast.timeline._past import Past
from holdfast.timeline._steps import (
    Middleware,
    checkpoint_context,
    forget_agents,
    get_agent,
    register_agent,
    safe_execute,
    step,
)
from holdfast.timeline._timeline import BranchInfo, Timeline

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
