"""The end of the call stack, where the caller of a tree has used up most of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from ropewalk.codec._codes import NO_ROOM
from ropewalk.errors import FormatError, NotStorable, RopewalkError

P = ParamSpec("P")
R = TypeVar("R")


def _within(error: Callable[[str], RopewalkError]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except RecursionError as exc:
                raise error(NO_ROOM) from exc

        return run

    return decorate


def reading(function: Callable[P, R]) -> Callable[P, R]:
    """What reads raises FormatError where the stack ends."""
    return _within(FormatError)(function)


def writing(function: Callable[P, R]) -> Callable[P, R]:
    """What writes raises NotStorable where the stack ends."""
    return _within(NotStorable)(function)


def reading_on(found: Iterator[R]) -> Iterator[R]:
    """The same for what is found one by one."""
    try:
        yield from found
    except RecursionError as exc:
        raise FormatError(NO_ROOM) from exc


def expect_room(refusal: NotStorable) -> None:
    """Raise a refusal that only says that the stack ended; it tells nothing of a value."""
    if isinstance(refusal.__cause__ or refusal.__context__, RecursionError):
        raise NotStorable(NO_ROOM) from refusal
