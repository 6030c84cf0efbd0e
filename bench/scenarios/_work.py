"""What a workload is, wherever the sides keep what they record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from bench._clock import Bounds, Stopwatch
from bench._model import Engine

Step = Callable[[Engine], None]
"""Records one version with an engine."""


class Work(ABC):
    """A value, and the steps in which it changes. It checks itself what was recorded."""

    def begin(self, engine: Engine) -> bool:
        """Record the first version; False if the steps begin with nothing."""
        return False

    @abstractmethod
    def steps(self) -> Iterator[Step]:
        """Change the value, again and again without end; each step records one change."""

    @abstractmethod
    def check(self, engine: Engine) -> None:
        """Raise AssertionError if the newest version does not read back."""

    @abstractmethod
    def payload(self) -> int:
        """The raw bytes of the value, once."""


def nothing() -> None:
    """What is done between steps, if nothing is."""


def take(
    steps: Iterable[Step],
    engine: Engine,
    watch: Stopwatch,
    bounds: Bounds,
    after: Callable[[], None] = nothing,
) -> str | None:
    """Take steps, each on the watch, until a cap is reached; which, in words."""
    for step in steps:
        watch(partial(step, engine))
        after()
        if cap := bounds.reached():
            return cap
    return None
