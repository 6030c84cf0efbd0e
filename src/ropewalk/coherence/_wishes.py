"""What agents want to write: as it is handed over, as it is checked, and as it was sent."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from ropewalk.coherence._content import Content
from ropewalk.coherence._protocol import Base, Version
from ropewalk.errors import InvalidInput
from ropewalk.store._checks import expect
from ropewalk.store._haste import hasty
from ropewalk.tree import ABSENT

if TYPE_CHECKING:
    from ropewalk.codec import Codec
    from ropewalk.coherence._artifact import Artifact
    from ropewalk.coherence._authorities._authority import Sent
    from ropewalk.errors import Unavailable

EDIT_SECONDS: Final = 60.0
"""For how long an edit waits for who holds the artifact, unless it is told."""

OnConflict: TypeAlias = Literal["merge", "raise", "overwrite"]
"""What becomes of a write whose base is no longer the newest version."""

ConflictPolicy: TypeAlias = OnConflict | Literal["replace"]
"""The same for one write: `replace` merges, and takes its own side where both changed a place."""


class Proposed(NamedTuple):
    """A value for an artifact, as an agent hands it over."""

    content: Content | None
    """None for a deletion."""
    if_version: int | None = None
    """The one version whose place it may take; 0 for none at all."""
    base: Base | None = None
    """What it was made from, if that is not what the agent itself read or put last."""
    replaces: bool = False
    """Whether it is known already to take the place of what its agent has not read."""


def expect_change(change: Any) -> None:
    """What changes a value is a plain function of it."""
    expect(callable(change), "the change is a function of the value", change)
    if iscoroutinefunction(change):
        raise InvalidInput(
            f"the change is a plain function, which may be called again: {change!r:.80} is a "
            "coroutine function. Await what it needs before the edit."
        )


@dataclass(frozen=True, slots=True)
class Edit:
    """A change by a function of the value."""

    change: Callable[[Any], Any]
    default: Any
    """What the function gets where there is no artifact; ABSENT if there must be one."""
    timeout: float | None

    @property
    def needs_artifact(self) -> bool:
        """Whether there is nothing to begin from but the artifact."""
        return self.default is ABSENT

    def first(self) -> Any:
        """The default, as a value that the function may change."""
        return deepcopy(self.default)

    def made_of(self, value: Any, codec: Codec) -> Content:
        """What the function makes of a value, which it may have changed instead."""
        with hasty(None):  # What else it may do is no part of the edit.
            changed = self.change(value)
        return Content.of(value if changed is None else changed, codec)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an agent wants an artifact to hold."""

    content: Content | None
    """None for a deletion."""
    base: Version | None
    """What it was made from; None if the agent knew of nothing."""
    expected: Version | None
    """What must be the newest version."""
    on_conflict: ConflictPolicy
    merged: bool = False
    replaced: bool = False
    """Whether it takes the place of what others wrote and its agent has not read."""

    @property
    def is_idle(self) -> bool:
        """Whether it would only take away what is not there."""
        return self.content is None and (self.expected is None or self.expected.deleted)


class Attempt(NamedTuple):
    """A commit that was sent."""

    agent: str
    wanted: dict[str, Wanted]
    action: str
    sent: Sent


Unsent: TypeAlias = "Callable[[Attempt, Unavailable], dict[str, Artifact | None]]"
"""What becomes of a commit of which it is not known whether it was made."""


class Unwritten(Version):
    """A value that an agent wrote, and that is not in the engine yet."""

    __slots__ = ("landed",)

    landed: Version | None
    """What it has become, if it has become exactly that."""

    @classmethod
    def of(
        cls, number: int, agent: str, time: int, content: Content | None, *, deleted: bool = False
    ) -> Unwritten:
        """What an agent wanted to write, made from version `number`."""
        made = cls(number, os.urandom(32), agent, time, deleted, content)
        made.landed = None
        return made


def is_there(version: Version | None) -> bool:
    """Whether there is an artifact, if this is its newest version."""
    return version is not None and not version.deleted


def number_of(version: Version | None) -> int:
    """The number of a version as callers know it: 0 where there is nothing."""
    return 0 if version is None or version.deleted else version.number
