"""Small checks that the models share: each names the field and says what is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ropewalk.errors import InvalidInput

T = TypeVar("T")


def own(value: Any) -> Any:
    """A copy of plain containers, all the way down; anything else is the same object.

    So a model and its caller share no dict and no list.
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
    """A mapping as a dict that nobody else holds; None is an empty one."""
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
    """An instance whose fields were checked before they were stored."""
    made = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def plain(value: str) -> str:
    """The characters of a str; of an enum's member or such, without its class."""
    return value if type(value) is str else str.__str__(value)


def text(value: Any, field: str) -> str:
    """A str."""
    if not isinstance(value, str):
        raise refusal(field, value, "a str")
    return plain(value)


def optional_text(value: Any, field: str) -> str | None:
    """A str or None."""
    if value is not None and not isinstance(value, str):
        raise refusal(field, value, "a str or None")
    return None if value is None else plain(value)


def identifier(value: Any, field: str) -> str | int:
    """An id: a str that is not empty, or an int."""
    if isinstance(value, str) and value:
        return plain(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise refusal(field, value, "a str that is not empty, or an int")


def refusal(field: str, value: Any, accepted: str) -> InvalidInput:
    """The one error that all fields share, to be raised."""
    try:
        shown = repr(value)
    except ValueError:  # Python writes no number of so many digits.
        shown = "too large to be shown"
    if len(shown) > 80:
        shown = f"{shown[:77]}..."
    return InvalidInput(f"{field} is {shown} ({type(value).__name__}); it takes {accepted}.")
