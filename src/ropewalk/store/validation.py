"""What was handed over is what it must be, or `InvalidInput` says what it must be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from ropewalk.errors import InvalidInput


def expect(sound: bool, what: str, given: object) -> None:
    """Refuse what is not sound; `what` says what it must be."""
    if not sound:
        raise InvalidInput(f"{what}, not {given!r:.80}")


def expect_whole(given: object, least: int, what: str) -> None:
    """Refuse what is not a whole number from `least` on."""
    expect(
        isinstance(given, int) and not isinstance(given, bool) and given >= least,
        f"{what} is a whole number from {least} on",
        given,
    )


def expect_timeout(given: object) -> None:
    """Refuse what nobody could wait for."""
    if given is not None:
        number = isinstance(given, int | float) and not isinstance(given, bool)
        sound = number and given <= threading.TIMEOUT_MAX  # type: ignore[operator]
        expect(sound, "a timeout is a number of seconds, or None to wait for ever", given)


def expect_seconds(given: object, what: str) -> None:
    """Refuse what is not a number of seconds from 0 on."""
    number = isinstance(given, int | float) and not isinstance(given, bool)
    sound = number and 0 <= given <= threading.TIMEOUT_MAX  # type: ignore[operator]
    expect(sound, f"{what} is a number of seconds", given)


def check_ttl(given: float | None) -> float | None:
    """How many seconds something is kept, checked; None is for ever."""
    if given is None:
        return None
    expect_seconds(given, "default_ttl_seconds")
    expect(given > 0, "default_ttl_seconds is more than 0, or None to keep for ever", given)
    return float(given)


def expect_clock(given: Callable[[], float]) -> Callable[[], float]:
    """A clock, checked."""
    expect(callable(given), "a clock is a function that gives seconds", given)
    return given


def check_backend(name: str) -> str:
    """A backend id, checked."""
    expect(isinstance(name, str) and name != "", "a backend id is a name", name)
    return name


def check_aliases(names: Iterable[str]) -> tuple[str, ...]:
    """Backend ids, checked; a text is one name, and no list of them."""
    sound = isinstance(names, Iterable) and not isinstance(names, str | bytes)
    expect(sound, "backend_aliases is a list of names", names)
    return tuple(check_backend(name) for name in names)
