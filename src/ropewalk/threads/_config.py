"""Which thread a call is about: what its `config` says, and where that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from ropewalk.errors import InvalidInput, InvalidName
from ropewalk.store import space_name
from ropewalk.threads._checking import plain
from ropewalk.timeline.timeline import check_agent

Id: TypeAlias = str | int
"""What may name a thread, a user or a message: text, or a whole number."""

_TENANT = "threads"
_LARGEST = 10**100


class Address(NamedTuple):
    """The thread that a call is about."""

    thread_id: Id
    user_id: Id | None
    branch: str | None
    """The branch that the call is about; None is the thread's current one."""

    @property
    def name(self) -> str:
        """The name of its timeline."""
        return name_of(self.thread_id)

    @property
    def tenant(self) -> str:
        """The tenant of its timeline: each user has one."""
        return tenant_of(self.user_id)

    @property
    def space(self) -> str:
        """Where it is stored."""
        return _space(self.thread_id, self.user_id)


def address_of(config: Mapping[str, Any]) -> Address:
    """The thread that a config names; raises `InvalidInput` if it names none."""
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
    except TypeError:  # What cannot be hashed is no id.
        known, user = check_id(thread_id, "thread_id"), check_id(user_id, "user_id")
    return Address(known, user, branch)


@lru_cache(4096, typed=True)
def _ids(thread_id: Any, user_id: Any) -> tuple[Id, Id | None]:
    user = None if user_id is None else check_id(user_id, "user_id")
    return check_id(thread_id, "thread_id"), user


def user_of(config: Mapping[str, Any]) -> Id | None:
    """The user that a config names, if it names one."""
    expect_config(config)
    user_id = config.get("user_id")
    return None if user_id is None else check_id(user_id, "user_id")


def expect_config(config: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` for what is no config."""
    if type(config) is not dict and not isinstance(config, Mapping):
        raise InvalidInput(
            f"config is a dict such as {{'thread_id': 'support-42'}}, not a {type(config).__name__}"
        )


def check_id(id: Any, what: str) -> Id:
    """The id, unless it cannot name anything; raises `InvalidInput`."""
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
    """How an id is spelled in a name: 1 and "1" are two."""
    if isinstance(id, int):
        return f"#{id}"
    return f"#{id}" if id.startswith("#") else id


def id_of(name: str) -> Id:
    """The id that a name spells."""
    if not name.startswith("#"):
        return name
    return name[1:] if name.startswith("##") else int(name[1:])


def tenant_of(user_id: Id | None) -> str:
    """The tenant for the threads of a user; without one, of nobody in particular."""
    return _TENANT if user_id is None else f"{_TENANT}:{name_of(user_id)}"


@lru_cache(4096, typed=True)
def _space(thread_id: Id, user_id: Id | None) -> str:
    try:
        return space_name(tenant_of(user_id), name_of(thread_id))
    except InvalidName as error:
        raise InvalidName(f"a thread cannot be named so: {error}") from None
