"""The strategies: when a copy may be served without asking, and what others are sent. Pure."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, Final, NamedTuple

from ropewalk.coherence.protocol import Entry
from ropewalk.errors import InvalidInput


class Bound(NamedTuple):
    """How old what is read may be."""

    seconds: float = 0.0
    """A read gives a version that was the newest at most so long before it began."""
    reads: int = 0
    """At most so many reads of one agent give a version that is no longer the newest."""

    @property
    def is_fresh(self) -> bool:
        """Whether no read gives less than the newest version at some moment of the read."""
        return not self.seconds and not self.reads

    def __str__(self) -> str:
        if self.is_fresh:
            return "fresh"
        return f"{self.reads} reads" if self.reads else f"{self.seconds:g} seconds"


class Strategy(ABC):
    """When a copy may be served without asking, and what others are sent after a write."""

    name: ClassVar[str]
    pushes: ClassVar[bool] = False
    """Whether the content goes along with an invalidation."""
    follows: ClassVar[bool] = False
    """Whether the client reads the operation log all the time, for all artifacts."""
    always_asks: ClassVar[bool] = False
    """Whether no copy is served without asking, except under a grant."""

    @property
    @abstractmethod
    def bound(self) -> Bound:
        """How old what is read may be."""

    @abstractmethod
    def serves(self, entry: Entry, now: float, followed: float) -> bool:
        """Whether a copy, of which nothing newer is known, may be served without asking, once.

        `followed` is the moment up to which the client has read the operation log.
        """

    def __repr__(self) -> str:
        return f"<strategy {self.name!r}, {self.bound}>"


class Lazy(Strategy):
    """Confirms the version of a copy at each read; the content moves only if it changed."""

    name = "lazy"
    always_asks = True

    @property
    def bound(self) -> Bound:
        """Fresh."""
        return Bound()

    def serves(self, entry: Entry, now: float, followed: float) -> bool:
        """Never without asking."""
        return False


class Eager(Lazy):
    """As `lazy`, and new content is sent to holders, so that they need not fetch it."""

    name = "eager"
    pushes = True


class Lease(Strategy):
    """Serves a copy without asking for a time after it was confirmed."""

    name = "lease"

    def __init__(self, ttl_seconds: float) -> None:
        self.ttl_seconds = ttl_seconds

    @property
    def bound(self) -> Bound:
        """The time that a copy is served for."""
        return Bound(seconds=self.ttl_seconds)

    def serves(self, entry: Entry, now: float, followed: float) -> bool:
        """As long as its time lasts."""
        return now < entry.confirmed + self.ttl_seconds


class AccessCount(Strategy):
    """Serves a copy without asking for so many reads after it was confirmed."""

    name = "access_count"

    def __init__(self, max_accesses: int) -> None:
        self.max_accesses = max_accesses

    @property
    def bound(self) -> Bound:
        """The number of reads."""
        return Bound(reads=self.max_accesses)

    def serves(self, entry: Entry, now: float, followed: float) -> bool:
        """As long as there are reads left."""
        return next(entry.reads) < self.max_accesses


class Broadcast(Strategy):
    """Follows the operation log: what was written reaches every client, asked for or not."""

    name = "broadcast"
    pushes = True
    follows = True

    def __init__(self, tick_seconds: float) -> None:
        self.tick_seconds = tick_seconds

    @property
    def bound(self) -> Bound:
        """One tick."""
        return Bound(seconds=self.tick_seconds)

    def serves(self, entry: Entry, now: float, followed: float) -> bool:
        """As long as the log was read within the last tick."""
        return now < followed + self.tick_seconds


STRATEGIES: Final = ("lazy", "eager", "lease", "access_count", "broadcast")

_INSIDE: Final = {"clock", "places"}  # For tests and for other layers.
_TICKS: Final = 300
_ACCESSES: Final = 100
_KNOWN: Final = {
    "lazy": (),
    "eager": (),
    "lease": ("ttl_ticks", "lease_ttl_ticks", "ttl_seconds"),
    "access_count": ("max_accesses", "access_count_max_accesses"),
    "broadcast": (),
}


def build_strategy(
    strategy: str | Strategy, *, tick_seconds: float = 1.0, **parameters: Any
) -> Strategy:
    """The strategy of a name, with its parameters; one that it does not have is an error.

    `lease` takes `ttl_seconds`, or `ttl_ticks` (also `lease_ttl_ticks`; 300 unless said), each
    of `tick_seconds`. `access_count` takes `max_accesses` (also `access_count_max_accesses`;
    100 unless said). The tick of `broadcast` is `tick_seconds`.
    """
    tick = check_seconds(tick_seconds, "tick_seconds")
    if isinstance(strategy, Strategy):
        _check_parameters(strategy.name, parameters, ())
        return strategy
    if not isinstance(strategy, str) or strategy not in _KNOWN:
        known = ", ".join(STRATEGIES)
        raise InvalidInput(f"there is no strategy {strategy!r:.80}; there are {known}")
    _check_parameters(strategy, parameters, _KNOWN[strategy])
    if strategy == "lease":
        return Lease(_ttl(parameters, tick))
    if strategy == "access_count":
        return AccessCount(_whole(parameters, _KNOWN[strategy], _ACCESSES))
    if strategy == "broadcast":
        return Broadcast(tick)
    return Lazy() if strategy == "lazy" else Eager()


def strategy_for(
    owner: type, strategy: str | Strategy, tick_seconds: float, parameters: Mapping[str, Any]
) -> Strategy:
    """As `build_strategy`; an error about an unknown parameter also says what `owner` takes."""
    try:
        return build_strategy(strategy, tick_seconds=tick_seconds, **parameters)
    except InvalidInput as error:
        if "benchmark" in parameters:
            raise InvalidInput(
                "benchmark= is not here yet: nothing counts tokens. `on_metric` tells of each "
                "operation, and `telemetry` counts hits and misses."
            ) from None
        known = _KNOWN.get(strategy, ()) if isinstance(strategy, str) else ()
        unknown = [one for one in parameters if one not in known]
        if not unknown:
            raise
        taken = sorted({"strategy", *owner.__init__.__kwdefaults__} - _INSIDE)  # type: ignore[misc]
        close = get_close_matches(unknown[0], taken, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise InvalidInput(
            f"{error}. Beside these, {owner.__name__} takes {', '.join(taken)}.{meant}"
        ) from None


def check_seconds(given: Any, name: str) -> float:
    """A positive number of seconds, checked."""
    usable = isinstance(given, int | float) and not isinstance(given, bool)
    if not usable or not math.isfinite(given) or given <= 0:
        raise InvalidInput(f"{name} is a positive number of seconds, not {given!r:.80}")
    return float(given)


def _ttl(parameters: Mapping[str, Any], tick: float) -> float:
    if "ttl_seconds" in parameters:
        if len(parameters) > 1:
            raise InvalidInput("ttl_seconds and ttl_ticks say the same thing: give one of them")
        return check_seconds(parameters["ttl_seconds"], "ttl_seconds")
    return tick * _whole(parameters, _KNOWN["lease"], _TICKS)


def _whole(parameters: Mapping[str, Any], names: tuple[str, ...], default: int) -> int:
    given = [(name, parameters[name]) for name in names if name in parameters]
    if not given:
        return default
    if len(given) > 1:
        raise InvalidInput(f"{given[0][0]} and {given[1][0]} are the same: give one of them")
    name, number = given[0]
    if type(number) is not int or number < 1:
        raise InvalidInput(f"{name} is a whole number from 1 on, not {number!r:.80}")
    return number


def _check_parameters(name: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise InvalidInput(f"strategy {name!r} has no parameter {', '.join(unknown)}; {has}")
