"""Points in time: aware, in UTC, to the microsecond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from ropewalk.errors import InvalidInput
from ropewalk.threads._checking import refusal

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def now() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


def as_time(value: Any, field: str) -> datetime:
    """An aware datetime in UTC; one that does not say its zone is refused."""
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
    """A time as dicts say it: a datetime, an ISO text with a zone, or seconds since 1970."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise refusal(field, value, "an ISO 8601 time with a zone, or seconds") from None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return _from_seconds(value, field)
    return as_time(value, field)


def write_seconds(value: datetime) -> int | float:
    """Seconds since 1970: an int where it is whole."""
    whole, rest = divmod(to_microseconds(value), 1_000_000)
    return whole if rest == 0 else whole + rest / 1_000_000


def to_microseconds(value: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (value - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """The time that is so many microseconds after 1970."""
    return _EPOCH + timedelta(0, 0, value)


def _from_seconds(value: float, field: str) -> datetime:
    accepted = "seconds since 1970 (not milliseconds), up to the year 9999"
    try:
        if isfinite(value):
            return _EPOCH + timedelta(seconds=value)
    except OverflowError:
        pass
    raise refusal(field, value, accepted)
