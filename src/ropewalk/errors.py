"""One tree of errors.

The second level says what a caller would do about the error: retry or merge a
`Conflict`, look elsewhere after `NotFound`, correct `InvalidInput`, restore or
repair what is `Corrupt`, wait while something is `Unavailable`, make room when a
store is `Full`, ask for permission when something is `NotAllowed`.

Every class has a `code`, a short stable word for logs and for `--json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ropewalk.tree import ObjectId, PathConflict

__all__ = [
    "AmbiguousFrameworkError",
    "ArtifactHeld",
    "ChangedMeanwhile",
    "ClassChanged",
    "Conflict",
    "Corrupt",
    "DamagedObject",
    "FieldNotSet",
    "FormatError",
    "Full",
    "GrantLost",
    "InlineSizeExceeded",
    "InvalidInput",
    "InvalidName",
    "LeaseHeld",
    "LeaseLost",
    "MergeConflict",
    "MessageNotFound",
    "MissingContent",
    "MissingObjects",
    "NewerFormat",
    "NoFrameworkDetectedError",
    "NotAllowed",
    "NotFound",
    "NotSaved",
    "NotStorable",
    "PathNotFound",
    "RefMoved",
    "Rewound",
    "RopewalkError",
    "StoreClosed",
    "StoreFull",
    "ThreadConflict",
    "Unavailable",
    "UndeclaredClass",
    "UnknownField",
    "UnresolvedReferenceError",
    "VersionConflict",
    "WriteIdReused",
    "WritesRefused",
]


class RopewalkError(Exception):
    """The root: everything that Ropewalk raises on purpose."""

    code: ClassVar[str] = "error"

    def __str__(self) -> str:
        # KeyError would show the repr of the message.
        return str(self.args[0]) if self.args else self.code

    def __reduce__(self) -> tuple[Any, ...]:
        # Made from its message and what it holds: pools of processes send errors home.
        return _remade, (type(self), self.args, self.__dict__)


def _remade(
    cls: type[RopewalkError], args: tuple[Any, ...], state: dict[str, Any]
) -> RopewalkError:
    """An error from another process."""
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class InvalidInput(RopewalkError, ValueError):
    """What was handed over cannot be used as it is."""

    code = "invalid-input"


class NotStorable(InvalidInput, TypeError):
    """A value cannot be stored exactly; `path` says where inside the value."""

    code = "not-storable"

    def __init__(self, reason: str, path: str = "value") -> None:
        super().__init__(f"{path} cannot be stored: {reason}")
        self.reason = reason
        self.path = path


class InvalidName(InvalidInput):
    """A name of a space, ref, branch or agent breaks the rules for names."""

    code = "invalid-name"


class WriteIdReused(InvalidInput):
    """A write id came back with another write than the one it stands for."""

    code = "write-id-reused"


class InlineSizeExceeded(InvalidInput):
    """A value is too large for an `Inline` field, which is kept in every checkpoint.

    `field` is its name, `size` and `limit` are in bytes.
    """

    code = "inline-size-exceeded"

    def __init__(self, field: str, size: int, limit: int) -> None:
        self.field, self.size, self.limit = field, size, limit
        super().__init__(
            f"inline field {field!r} takes {size} bytes; the most is {limit}. Declare it as "
            "Externalized, or raise inline_threshold_bytes."
        )


class UnknownField(InvalidInput, KeyError, AttributeError):
    """A typed state has no field of this name."""

    code = "unknown-field"


class AmbiguousFrameworkError(InvalidInput):
    """Several frameworks are in use, and nobody said which is meant."""

    code = "ambiguous-framework"


class NoFrameworkDetectedError(InvalidInput):
    """No framework is in use, and nobody said which is meant."""

    code = "no-framework-detected"


class NotFound(RopewalkError, KeyError):
    """What was asked for is not there."""

    code = "not-found"


class MessageNotFound(NotFound, IndexError):
    """A thread has no such message, or none at all."""

    code = "message-not-found"


class FieldNotSet(NotFound, AttributeError):
    """A field of a typed state was never assigned, or was deleted."""

    code = "field-not-set"


class UnresolvedReferenceError(NotFound):
    """A reference names a backend that this store does not answer to."""

    code = "unresolved-reference"


class MissingContent(UnresolvedReferenceError):
    """The store answers to a reference, but what it names is not in it.

    `ids` are the objects that are missing.
    """

    code = "missing-content"

    def __init__(self, hash: str, ids: Sequence[ObjectId]) -> None:
        self.hash, self.ids = hash, tuple(ids)
        super().__init__(
            f"the content of reference {hash[:12]} is not in the store: this is another store of "
            "the same backend_id, or it was released or its time was over, and gc removed it. "
            "Hand over the store that it was made with, restore it from a copy, or assign the "
            "value again."
        )


class PathNotFound(NotFound, LookupError):
    """A path leads nowhere in a value."""

    code = "path-not-found"


class MissingObjects(NotFound):
    """Objects that are pointed to are absent or condemned; send them again."""

    code = "missing-objects"

    def __init__(self, ids: Sequence[ObjectId]) -> None:
        self.ids = tuple(ids)
        shown = ", ".join(one.hex()[:12] for one in self.ids[:3])
        more = f" and {len(self.ids) - 3} more" if len(self.ids) > 3 else ""
        super().__init__(
            f"{len(self.ids)} object(s) are not in the store: {shown}{more}. "
            "A writer sends them again; a reader restores them from a copy of the store."
        )


class Conflict(RopewalkError):
    """Somebody else changed the same thing: read again, then retry or merge."""

    code = "conflict"


class ChangedMeanwhile(Conflict):
    """A value was changed while it was being saved; nothing was stored. Save it again.

    `path` says where inside the value.
    """

    code = "changed-meanwhile"

    def __init__(self, path: str = "value") -> None:
        super().__init__(
            f"{path} was changed, again and again, while it was being saved. Nothing was stored: "
            "save it again, or let nobody change it meanwhile."
        )
        self.path = path


class RefMoved(Conflict):
    """A ref is not where the writer last saw it."""

    code = "ref-moved"

    def __init__(
        self,
        name: str,
        expected: ObjectId | None,
        actual: ObjectId | None,
        advice: str = "Read it again, then retry or merge.",
    ) -> None:
        self.name, self.expected, self.actual = name, expected, actual
        super().__init__(
            f"ref {name!r} was expected at {_short(expected)} but is at {_short(actual)}. {advice}"
        )


class VersionConflict(Conflict):
    """An item has another version than the writer expects; nothing was changed.

    `expected` and `actual` are versions; 0 is no item. `conflicts` lists what both sides
    changed, if it was tried to merge them.
    """

    code = "version-conflict"

    def __init__(
        self,
        namespace: Sequence[str],
        key: str,
        expected: int,
        actual: int,
        conflicts: Sequence[PathConflict] = (),
        *,
        kind: str = "item",
        advice: str = "read it again, then retry",
    ) -> None:
        self.namespace, self.key = tuple(namespace), key
        self.expected, self.actual = expected, actual
        self.conflicts, self._kind = tuple(conflicts), kind
        super().__init__(
            f"{kind} {key!r:.80} in {_place(self.namespace)} was expected at {_version(expected)}, "
            f"and {'is not there' if not actual else f'is at {_version(actual)}'}"
            f"{_not_merged(self.conflicts)} Nothing was changed: {advice}"
            f"{', or use `edit`' if self.conflicts else ''}."
        )

    def advising(self, advice: str) -> VersionConflict:
        """The same conflict, with other advice."""
        return VersionConflict(
            self.namespace,
            self.key,
            self.expected,
            self.actual,
            self.conflicts,
            kind=self._kind,
            advice=advice,
        )


class LeaseHeld(Conflict):
    """Another holder has the lease.

    It may be taken over after `retry_after` seconds if it is not renewed meanwhile. That is
    None where a commit was refused: nobody has looked how long the lease still lives.
    """

    code = "lease-held"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ArtifactHeld(LeaseHeld):
    """Another agent holds the grant to write an artifact; nothing was changed.

    `artifact` and `agent` name both; `retry_after` is as for `LeaseHeld`.
    """

    code = "artifact-held"

    def __init__(
        self, artifact: str, agent: str, retry_after: float | None = None, *, here: bool = False
    ) -> None:
        self.artifact, self.agent = artifact, agent
        if here:
            super().__init__(
                f"artifact {artifact!r:.80} is held by agent {agent!r:.80} already, in this "
                "thread, which would wait for itself. Use the grant that it has, or release it."
            )
            return
        soon = (
            "Try again when it was given back"
            if retry_after is None
            else f"It can be taken over in {max(retry_after, 0.0):.3g} seconds if it stays silent"
        )
        holder = f"agent {agent!r:.80}" if agent else "somebody who ends the grant of another"
        super().__init__(
            f"artifact {artifact!r:.80} is held by {holder}, and only the holder may write it. "
            f"{soon}; `edit` and `hold` wait for that.",
            retry_after,
        )


class LeaseLost(Conflict):
    """The lease ended or went to somebody else; its fencing token is no longer good."""

    code = "lease-lost"


class GrantLost(LeaseLost):
    """An agent no longer holds the grant under which it writes an artifact; nothing was changed.

    `trigger` says why: `reclaim_heartbeat` if the agent was silent for too long,
    `reclaim_max_hold` if it held the grant for too long, `release` if it was given back.
    """

    code = "grant-lost"

    def __init__(self, artifact: str, agent: str, trigger: str) -> None:
        self.artifact, self.agent, self.trigger = artifact, agent, trigger
        super().__init__(
            f"agent {agent!r:.80} no longer holds artifact {artifact!r:.80} ({trigger}). Nothing "
            "was changed: others may have written since. Release it or hold it again, and read it."
        )


class ThreadConflict(Conflict):
    """Another run went on from the same checkpoint of a thread; nothing was changed."""

    code = "thread-conflict"


class MergeConflict(Conflict):
    """Two changes of the same paths cannot become one; nothing was changed.

    `conflicts` lists each path with its value in base, ours and theirs.
    """

    code = "merge-conflict"

    def __init__(self, conflicts: Sequence[PathConflict]) -> None:
        self.conflicts = tuple(conflicts)
        shown = "; ".join(str(one) for one in self.conflicts[:3])
        more = f"; and {len(self.conflicts) - 3} more" if len(self.conflicts) > 3 else ""
        super().__init__(
            f"{len(self.conflicts)} path(s) changed on both sides: {shown}{more}. "
            "Choose a merger for them, or settle them by hand; nothing was changed."
        )


class Corrupt(RopewalkError):
    """Stored bytes are not what they must be: restore or repair."""

    code = "corrupt"


class FormatError(Corrupt, ValueError):
    """Bytes are not in Ropewalk's format, or not in its one accepted form."""

    code = "format-error"


class DamagedObject(Corrupt):
    """The stored bytes of one object do not match its hash."""

    code = "damaged-object"

    def __init__(self, id: ObjectId, reason: str) -> None:
        self.id = id
        super().__init__(
            f"object {id.hex()[:12]} is damaged: {reason}. Restore it from a copy of the store."
        )


class Rewound(Corrupt):
    """An engine went back in time: it no longer has operations that it had shown.

    It was restored from a backup, or lost its last moments. Whoever followed its log reads
    everything anew, and follows from there.
    """

    code = "rewound"


class Unavailable(RopewalkError):
    """Something does not answer now: wait and try again."""

    code = "unavailable"


class StoreClosed(Unavailable):
    """The store was closed."""

    code = "store-closed"


class WritesRefused(Unavailable):
    """The engine of shared artifacts cannot be reached; nothing was written or kept."""

    code = "writes-refused"


class Full(RopewalkError):
    """There is no room: make some, then try again."""

    code = "full"


class StoreFull(Full):
    """A store reached its size limit or the disk is full; it stays readable."""

    code = "store-full"


class NotAllowed(RopewalkError):
    """The program did not allow this."""

    code = "not-allowed"


class NotSaved(RopewalkError):
    """A function succeeded, but its result could not be saved; `result` is what it gave.

    The function is not run again. Save the result by other means, or correct what
    prevents it: the cause says what that is. After a task, `state` is the handle with
    the changes that are not committed: it can be corrected and committed.
    """

    code = "not-saved"

    def __init__(
        self, result: object, description: str, cause: Exception, state: Any = None
    ) -> None:
        self.result, self.state = result, state
        what = f"{description!r}" if description else "the function"
        why = str(cause).rstrip(".")
        super().__init__(
            f"{what} succeeded, but its result could not be saved: {why}. It was not run again; "
            "the result is in the attribute `result` of this error."
        )


class UndeclaredClass(NotAllowed):
    """Stored bytes name a class that is not here: not loaded, not declared, or not installed."""

    code = "undeclared-class"

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)


class ClassChanged(NotAllowed):
    """Stored fields do not fit the class as it is declared now."""

    code = "class-changed"


class NewerFormat(NotAllowed):
    """The data was written by a newer Ropewalk."""

    code = "newer-format"


def _not_merged(conflicts: Sequence[PathConflict]) -> str:
    if not conflicts:
        return "."
    more = f" and {len(conflicts) - 3} more" if len(conflicts) > 3 else ""
    shown = "; ".join(str(one) for one in conflicts[:3])
    return f", and the changes cannot be merged without a merger for {shown}{more}."


def _place(namespace: Sequence[str]) -> str:
    """A namespace of a LangGraph store, or the name of a set of artifacts."""
    return repr(namespace[0] if len(namespace) == 1 else tuple(namespace))[:200]


def _version(number: int) -> str:
    return f"version {number}" if number else "no version"


def _short(id: ObjectId | None) -> str:
    return "nothing" if id is None else id.hex()[:12]
