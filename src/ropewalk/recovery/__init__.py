"""What to do when a step fails: recovery strategies and the retry loop.

A strategy decides whether it handles an error, which state to retry with, and how long to wait.
Strategies never modify the state they are given, and know nothing of stores and timelines.
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
