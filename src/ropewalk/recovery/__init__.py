"""What to do when a step fails: strategies, and the loop that tries again.

A strategy says whether it can handle an error, with which state to try again, and how
long to wait before. None of them changes the state that it is given. They know nothing
of stores and timelines.
"""

from __future__ import annotations

from ropewalk.recovery.retry import Failure, Recovery
from ropewalk.recovery.strategies import (
    AlternativePathStrategy,
    CompositeStrategy,
    DegradeGracefully,
    RecoveryStrategy,
    RetryWithBackoff,
)

__all__ = [
    "AlternativePathStrategy",
    "CompositeStrategy",
    "DegradeGracefully",
    "Failure",
    "Recovery",
    "RecoveryStrategy",
    "RetryWithBackoff",
]
