"""What a read or a write of an artifact gives."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from ropewalk.coherence._content import Content
from ropewalk.coherence._protocol import State, Version

Source: TypeAlias = Literal["cache_hit", "fetch", "broadcast", "write", "search"]
"""Where what was read came from."""

_UNREAD: Final = object()


class Artifact:
    """A version of an artifact, as one agent got it.

    `value` is the caller's own: changing it changes nothing else.
    """

    __slots__ = (
        "_content",
        "_value",
        "_version",
        "degraded",
        "merged",
        "name",
        "replaced",
        "source",
        "state",
    )

    def __init__(
        self,
        name: str,
        version: Version,
        content: Content,
        state: State,
        source: Source,
        degraded: bool = False,
        merged: bool = False,
        replaced: bool = False,
    ) -> None:
        self.name = name
        self._value: Any = _UNREAD
        self.state, self.source = state, source
        self.degraded = degraded
        """Whether the engine could not be asked: then this is the last value known."""
        self.merged = merged
        """Whether this write was merged with what others wrote, so that it holds more."""
        self.replaced = replaced
        """Whether this write took the place of what others wrote and its agent had not read."""
        self._version, self._content = version, content

    @property
    def value(self) -> Any:
        """What it holds. Made when first asked for: a writer rarely wants it back."""
        if self._value is _UNREAD:
            self._value = self._content.fresh()
        return self._value

    @property
    def version(self) -> int:
        """Its number: 1, 2, 3 and so on, never used again."""
        return self._version.number

    @property
    def agent(self) -> str:
        """Who wrote it."""
        return self._version.agent

    @property
    def time(self) -> int:
        """When it was written, in microseconds since 1970. Only for people."""
        return self._version.time

    @property
    def created(self) -> int:
        """When the artifact came to be, or came back after it was deleted; as `time`."""
        return self._version.created

    def holds(self, value: Any) -> bool:
        """Whether its value is exactly this one, whatever became of the caller's copy."""
        return self._content.holds(value)

    @property
    def content_hash(self) -> str:
        """The root of the value's tree, in hex: equal values have equal hashes."""
        return self._content.root().hex()

    def __repr__(self) -> str:
        mark = " degraded" if self.degraded else ""
        told = f"{self.name!r} version {self.version} by {self.agent!r:.80}"
        return f"<Artifact {told}{mark}: {self.value!r:.80}>"
