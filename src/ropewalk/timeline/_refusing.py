"""Timelines that are only looked at: what would change them is refused, and says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ropewalk.errors import InvalidInput
from ropewalk.timeline._timeline import Timeline


def refuse(cls: type[Timeline], why: str, verbs: Iterable[tuple[str, str, str]]) -> None:
    """Have methods of a class raise `InvalidInput`.

    Each verb is the name of a method, what it would do, and what to do instead. In `why`,
    `{name}` is the timeline's.
    """
    for method, verb, instead in verbs:
        setattr(cls, method, _refusal(why, verb, instead))


def _refusal(why: str, verb: str, instead: str) -> Callable[..., NoReturn]:
    def refused(self: Timeline, *arguments: Any, **options: Any) -> NoReturn:
        said = why.format(name=f"{self.name!r:.80}")
        raise InvalidInput(f"{said}: {verb} is not done here. {instead}")

    refused.__doc__ = f"Refused. {instead}"
    return refused
