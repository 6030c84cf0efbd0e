"""What grants need of a client, and tell it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ropewalk.store import Lease, LeaseRecord

if TYPE_CHECKING:
    from ropewalk.coherence._grants._grant import Grant
    from ropewalk.coherence._grants._recovery import Reclaim


class LeaseAuthority(Protocol):
    """Where leases of artifacts are. Each call is as the one of a store."""

    def acquire(self, artifact: str, holder: str, duration: float) -> Lease: ...

    def renew(self, lease: Lease) -> Lease: ...

    def release(self, lease: Lease) -> bool: ...

    def seize(self, record: LeaseRecord, holder: str, duration: float) -> Lease | None: ...

    def leases(self) -> list[LeaseRecord]: ...

    def lease_name(self, artifact: str) -> str: ...

    def leased(self, record: LeaseRecord) -> str | None: ...


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a client does when its grants change. None of it may wait for long."""

    write: Callable[[str, str, Any], Any]
    """Write as an agent, an artifact, a value: asks `fence_token` for the token."""
    renewed: Callable[[Grant], None] = _ignore
    """The time of a grant has begun again."""
    released: Callable[[Grant], None] = _ignore
    """An agent gives its grant back: from now on it counts on nothing."""
    lost: Callable[[Grant, str], None] = _ignore
    """An agent of this client has lost its grant: it may not read from cache. With its trigger."""
    reclaimed: Callable[[Reclaim], None] = _ignore
    """This client has ended a grant, of its own or of another client."""
