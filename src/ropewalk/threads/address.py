"""Which thread a call addresses: `config` resolved to a timeline, and the thread's record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import replace as _replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from ropewalk.errors import InvalidInput, InvalidName
from ropewalk.store import space_name
from ropewalk.threads.fields import (
    as_time,
    from_microseconds,
    identifier,
    optional_text,
    own_mapping,
    plain,
    read_time,
    refusal,
    to_microseconds,
)
from ropewalk.timeline.timeline import check_agent

Id: TypeAlias = str | int
"""An id of a thread, a user or a message: text or an integer."""

_TENANT = "threads"
_LARGEST = 10**100


class Address(NamedTuple):
    """The thread that a call addresses."""

    thread_id: Id
    user_id: Id | None
    branch: str | None
    """The branch the call addresses; None for the thread's current branch."""

    @property
    def name(self) -> str:
        """The name of the thread's timeline."""
        return name_of(self.thread_id)

    @property
    def tenant(self) -> str:
        """The tenant of the thread's timeline; each user has one."""
        return tenant_of(self.user_id)

    @property
    def space(self) -> str:
        """The space the timeline is stored in."""
        return _space(self.thread_id, self.user_id)


def address_of(config: Mapping[str, Any]) -> Address:
    """The thread that a config addresses; raises `InvalidInput` if it has no thread id."""
    expect_config(config)
    thread_id, user_id, branch = map(config.get, ("thread_id", "user_id", "branch"))
    if thread_id is None:
        raise InvalidInput(
            "config names no thread: it needs a thread_id, as in {'thread_id': 'support-42'}"
        )
    if branch is not None and (not isinstance(branch, str) or not branch):
        raise InvalidInput(f"config['branch'] is the name of a branch, not {branch!r:.80}")
    try:
        known, user = _ids(thread_id, user_id)
    except TypeError:  # Unhashable values are never valid ids.
        known, user = check_id(thread_id, "thread_id"), check_id(user_id, "user_id")
    return Address(known, user, branch)


@lru_cache(4096, typed=True)
def _ids(thread_id: Any, user_id: Any) -> tuple[Id, Id | None]:
    user = None if user_id is None else check_id(user_id, "user_id")
    return check_id(thread_id, "thread_id"), user


def user_of(config: Mapping[str, Any]) -> Id | None:
    """The user id in a config, or None."""
    expect_config(config)
    user_id = config.get("user_id")
    return None if user_id is None else check_id(user_id, "user_id")


def expect_config(config: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` for a config that is not a mapping."""
    if type(config) is not dict and not isinstance(config, Mapping):
        raise InvalidInput(
            f"config is a dict such as {{'thread_id': 'support-42'}}, not a {type(config).__name__}"
        )


def check_id(id: Any, what: str) -> Id:
    """Return the id if it is valid; raises `InvalidInput`."""
    if isinstance(id, bool) or not isinstance(id, str | int):
        raise InvalidInput(f"{what} is text or a whole number, not {id!r:.80}")
    if isinstance(id, str):
        if not id:
            raise InvalidInput(
                f"{what} is empty: it is text of at least one character, or a number"
            )
        try:
            return check_agent(plain(id))
        except InvalidName:
            raise InvalidName(
                f"{what} {id!r:.80} looks like a path, which no id may. Slashes may stand "
                "between parts, as in 'team/42'."
            ) from None
    if abs(id) >= _LARGEST:
        raise InvalidInput(f"{what} is a whole number of too many digits")
    return int(id)


def name_of(id: Id) -> str:
    """Encode an id as a name, keeping 1 and "1" distinct."""
    if isinstance(id, int):
        return f"#{id}"
    return f"#{id}" if id.startswith("#") else id


def id_of(name: str) -> Id:
    """Decode an id from a name."""
    if not name.startswith("#"):
        return name
    return name[1:] if name.startswith("##") else int(name[1:])


def tenant_of(user_id: Id | None) -> str:
    """The tenant that holds a user's threads; the anonymous tenant without a user."""
    return _TENANT if user_id is None else f"{_TENANT}:{name_of(user_id)}"


def user_of_tenant(tenant: str) -> Id | None:
    """The user that a tenant belongs to; raises `ValueError` if it is not a tenant of threads."""
    if tenant == _TENANT:
        return None
    kind, _, user = tenant.partition(":")
    if kind != _TENANT or not user:
        raise ValueError(f"{tenant!r:.80} has no threads")
    return id_of(user)


@lru_cache(4096, typed=True)
def _space(thread_id: Id, user_id: Id | None) -> str:
    try:
        return space_name(tenant_of(user_id), name_of(thread_id))
    except InvalidName as error:
        raise InvalidName(f"a thread cannot be named so: {error}") from None


# The record of a thread.


_set = object.__setattr__
_TIMES: Final = ("created_at", "updated_at")
_NAMES: Final = ("thread_id", "thread_name", "user_id", "metadata", *_TIMES)


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """The record of a thread: validated on construction and immutable.

    It copies the containers it is given. `replace` returns a modified copy.
    """

    thread_id: str | int
    """The id of the thread. 1 and "1" are different threads."""
    thread_name: str | None = None
    """A display name."""
    user_id: str | int | None = None
    """The user that owns the thread."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Application metadata."""
    created_at: datetime | None = None
    """When the record was first stored, in UTC."""
    updated_at: datetime | None = None
    """When the record was last stored, in UTC."""

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
        """Return a copy with these fields changed, validated like a new record."""
        return _replace(self, **changes)

    def to_stored(self) -> dict[str, Any]:
        """The record as plain values for storage, without absent fields.

        The dict shares the record's containers: encode it, do not modify it.
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
        """Rebuild a record from `to_stored`, without validating it again.

        The record takes ownership of the values, so pass freshly decoded ones.
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
    """Convert a `ThreadInfo`, or a dict with its fields, to a `ThreadInfo`.

    Times may be ISO strings with a zone, or seconds since 1970.
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
