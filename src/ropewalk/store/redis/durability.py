"""What a Redis server keeps, by its settings, and whether that is enough. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from ropewalk.errors import InvalidInput, NotAllowed
from ropewalk.store.model import Durability

Asked = Literal["full", "relaxed"]


class Settings(NamedTuple):
    """What a server says of itself."""

    info: Mapping[str, str]
    """From INFO."""
    config: Mapping[str, str] | None
    """From CONFIG GET; None where that is not allowed."""

    @property
    def version(self) -> tuple[int, ...]:
        """The version of Redis that it is, or is compatible with."""
        parts = self.info.get("redis_version", "0").split(".")
        return tuple(int(part) for part in parts if part.isdecimal())

    def evicts(self) -> str:
        """By which policy it removes keys when its memory is full; '' if by none."""
        known = self.info if self.config is None else self.config
        limit = known.get("maxmemory", "0")
        policy = known.get("maxmemory-policy", known.get("maxmemory_policy", "noeviction"))
        return "" if limit == "0" or policy == "noeviction" else policy


# What `full` asks of a server: setting, value, and why.
_FULL = (
    ("appendonly", "yes", "every write is in its log"),
    ("appendfsync", "always", "the log is on the disk before a commit is acknowledged"),
    ("no-appendfsync-on-rewrite", "no", "also while the log is rewritten"),
)


def check_asked(durability: str) -> Asked:
    """A durability that can be asked for."""
    match durability:
        case "full" | "relaxed":
            return durability
    raise InvalidInput(f"durability is 'full' or 'relaxed', not {durability!r:.40}")


def judge(where: str, settings: Settings, asked: Asked) -> Durability:
    """What an acknowledged commit survives there; `NotAllowed` if that is less than asked.

    A server may only evict what is marked to expire, which nothing of a store is.
    """
    if settings.version < (6,):
        raise NotAllowed(f"the Redis server at {where} is too old: Ropewalk needs Redis 6 or newer")
    policy = settings.evicts()
    if policy.startswith("allkeys"):
        raise NotAllowed(
            f"the Redis server at {where} evicts keys when its memory is full (maxmemory-policy "
            f"{policy}), and would remove live data. Set `maxmemory-policy noeviction` there, or "
            "use a server of its own for Ropewalk."
        )
    if asked == "full":
        _expect_full(where, settings, policy)
        return "full"
    config = settings.config
    keeps_nothing = config is not None and config.get("appendonly") == "no" and not config["save"]
    return "none" if keeps_nothing else "relaxed"


def _expect_full(where: str, settings: Settings, policy: str) -> None:
    instead = (
        'or ask for less with durability="relaxed" (?durability=relaxed in a URL), which may lose '
        "the last moments"
    )
    config = settings.config
    if config is None:
        raise NotAllowed(
            f"the Redis server at {where} does not say whether a commit survives the loss of "
            "power: it does not allow CONFIG GET. Allow that to its user, if it is set to "
            f"{_wanted()}, {instead}."
        )
    wrong = [
        f"{name} is {config.get(name, 'unknown')}, and must be {value} so that {why}"
        for name, value, why in _FULL
        if config.get(name) != value
    ]
    if policy:
        wrong.append(f"maxmemory-policy is {policy}, and must be noeviction")
    if wrong:
        raise NotAllowed(
            f"a commit on the Redis server at {where} may not survive the loss of power: "
            f"{'; '.join(wrong)}. Set {_wanted()} there, {instead}."
        )


def _wanted() -> str:
    parts = [f"`{name} {value}`" for name, value, _ in _FULL]
    return ", ".join([*parts, "`maxmemory-policy noeviction`"])
