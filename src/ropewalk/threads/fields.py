"""Validators of this layer's models; each error names the field and what is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, TypeVar

from ropewalk.errors import InvalidInput

T = TypeVar("T")


def own(value: Any) -> Any:
    """Copy plain containers recursively; other objects are returned as they are.

    A model therefore shares no dict or list with its caller.
    """
    kind = type(value)
    if kind is dict:
        return {key: own(one) for key, one in value.items()}
    if kind is list:
        return [own(one) for one in value]
    if kind is tuple:
        return tuple([own(one) for one in value])
    if kind is set or kind is bytearray:
        return kind(value)
    return value


def own_mapping(value: Any, field: str) -> dict[Any, Any]:
    """Copy a mapping to a new dict; None becomes an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refusal(field, value, "a mapping")
    try:
        return {key: own(one) for key, one in value.items()}
    except RecursionError:
        raise InvalidInput(
            f"{field} holds itself, or is nested too deep. Hand over plain, finite values."
        ) from None


def bare(cls: type[T], **fields: Any) -> T:
    """An instance built without validation, from fields that were validated before storage."""
    made = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def plain(value: str) -> str:
    """The characters of a str subclass, such as an enum member, as a plain str."""
    return value if type(value) is str else str.__str__(value)


def text(value: Any, field: str) -> str:
    """Check for a str."""
    if not isinstance(value, str):
        raise refusal(field, value, "a str")
    return plain(value)


def optional_text(value: Any, field: str) -> str | None:
    """Check for a str or None."""
    if value is not None and not isinstance(value, str):
        raise refusal(field, value, "a str or None")
    return None if value is None else plain(value)


def identifier(value: Any, field: str) -> str | int:
    """Check for an id: a non-empty str, or an int."""
    if isinstance(value, str) and value:
        return plain(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise refusal(field, value, "a str that is not empty, or an int")


def refusal(field: str, value: Any, accepted: str) -> InvalidInput:
    """Build the error that all validators raise."""
    try:
        shown = repr(value)
    except ValueError:  # Python refuses to format integers of so many digits.
        shown = "too large to be shown"
    if len(shown) > 80:
        shown = f"{shown[:77]}..."
    return InvalidInput(f"{field} is {shown} ({type(value).__name__}); it takes {accepted}.")


# Points in time: aware, in UTC, to the microsecond.


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


def as_time(value: Any, field: str) -> datetime:
    """Convert an aware datetime to UTC; a naive one is refused."""
    if not isinstance(value, datetime):
        raise refusal(field, value, "a datetime with a zone")
    if value.tzinfo is UTC:
        return value
    if value.utcoffset() is None:
        raise InvalidInput(
            f"{field} is {value.isoformat()}, which does not say its zone. "
            "Use datetime.now(UTC), or add tzinfo=UTC if it is meant in UTC."
        )
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise refusal(field, value, "a time between the years 1 and 9999 in UTC") from None


def read_time(value: Any, field: str) -> datetime:
    """Read a time from a dict: a datetime, an ISO string with a zone, or seconds since 1970."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise refusal(field, value, "an ISO 8601 time with a zone, or seconds") from None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return _from_seconds(value, field)
    return as_time(value, field)


def write_seconds(value: datetime) -> int | float:
    """Seconds since 1970, as an int if whole."""
    whole, rest = divmod(to_microseconds(value), 1_000_000)
    return whole if rest == 0 else whole + rest / 1_000_000


def to_microseconds(value: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (value - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """The time at a number of microseconds since 1970."""
    return _EPOCH + timedelta(0, 0, value)


def _from_seconds(value: float, field: str) -> datetime:
    accepted = "seconds since 1970 (not milliseconds), up to the year 9999"
    try:
        if isfinite(value):
            return _EPOCH + timedelta(seconds=value)
    except OverflowError:
        pass
    raise refusal(field, value, accepted)
