"""An agent's named history: save each step, go back, branch, merge, recover."""

from __future__ import annotations

from ropewalk.timeline.checkpoint import Checkpoint, CheckpointStatus, Diff, Past
from ropewalk.timeline.drawing import TreeLine
from ropewalk.timeline.steps import (
    Middleware,
    checkpoint_context,
    forget_agents,
    get_agent,
    register_agent,
    safe_execute,
    step,
)
from ropewalk.timeline.timeline import BranchInfo, Timeline

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
