"""The record of a thread: what is known about a conversation beside what is said in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import replace as _replace
from datetime import datetime
from typing import Any, Final

from ropewalk.errors import InvalidInput
from ropewalk.threads._checking import identifier, optional_text, own_mapping, refusal
from ropewalk.threads._times import as_time, from_microseconds, read_time, to_microseconds

_set = object.__setattr__
_TIMES: Final = ("created_at", "updated_at")
_NAMES: Final = ("thread_id", "thread_name", "user_id", "metadata", *_TIMES)


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """The record of a thread; checked when it is made, and then left as it is.

    It shares no dict and no list with who made it. `replace` makes a changed one.
    """

    thread_id: str | int
    """What names the thread. 1 and "1" are two threads."""
    thread_name: str | None = None
    """A name for people."""
    user_id: str | int | None = None
    """Whose thread it is."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Whatever the program notes about it."""
    created_at: datetime | None = None
    """When the record was first put, in UTC."""
    updated_at: datetime | None = None
    """When the record was last put, in UTC."""

    def __post_init__(self) -> None:
        identifier(self.thread_id, "thread_id")
        optional_text(self.thread_name, "thread_name")
        if self.user_id is not None:
            identifier(self.user_id, "user_id")
        _set(self, "metadata", own_mapping(self.metadata, "metadata"))
        for name in _TIMES:
            value = getattr(self, name)
            if value is not None:
                _set(self, name, as_time(value, name))

    def replace(self, **changes: Any) -> ThreadInfo:
        """A record with these fields changed, checked like a new one."""
        return _replace(self, **changes)

    def to_stored(self) -> dict[str, Any]:
        """Plain values, as they are stored; what is absent is left out.

        The dict shares the record's own values: encode it, do not change it.
        """
        made: dict[str, Any] = {"thread_id": self.thread_id}
        if self.thread_name is not None:
            made["thread_name"] = self.thread_name
        if self.user_id is not None:
            made["user_id"] = self.user_id
        if self.metadata:
            made["metadata"] = self.metadata
        for name in _TIMES:
            value = getattr(self, name)
            if value is not None:
                made[name] = to_microseconds(value)
        return made

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> ThreadInfo:
        """What `to_stored` gave; nothing is checked again.

        The record takes the values over: hand in what was just decoded.
        """
        made = object.__new__(cls)
        for name in ("thread_id", "thread_name", "user_id"):
            _set(made, name, stored.get(name))
        _set(made, "metadata", stored.get("metadata") or {})
        for name in _TIMES:
            value = stored.get(name)
            _set(made, name, None if value is None else from_microseconds(value))
        return made


def as_thread_info(value: ThreadInfo | Mapping[str, Any]) -> ThreadInfo:
    """A `ThreadInfo`, from one or from a dict with its fields.

    Times may be ISO texts with a zone, or seconds since 1970.
    """
    if isinstance(value, ThreadInfo):
        return value
    if not isinstance(value, Mapping):
        raise refusal("thread", value, "a ThreadInfo or a dict with its fields")
    unknown = [key for key in value if key not in _NAMES]
    if unknown:
        raise InvalidInput(
            f"a thread has no field {unknown[0]!r}; it has {', '.join(_NAMES)}. "
            "Put anything else into metadata."
        )
    if "thread_id" not in value:
        raise InvalidInput("a thread needs a thread_id: a str that is not empty, or an int.")
    fields = dict(value)
    for name in _TIMES:
        if fields.get(name) is not None:
            fields[name] = read_time(fields[name], name)
    return ThreadInfo(**fields)
