"""One message of a conversation, its token usage, and message ids."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, cast

from ropewalk.errors import InvalidInput
from ropewalk.store.forking import freed_after_fork
from ropewalk.threads import openai
from ropewalk.threads.fields import (
    as_time,
    bare,
    from_microseconds,
    identifier,
    now,
    optional_text,
    own_mapping,
    plain,
    refusal,
    to_microseconds,
)
from ropewalk.threads.parts import (
    Part,
    ToolCall,
    as_content,
    content_from_stored,
    content_to_stored,
    read_call,
    text_of,
)

Role: TypeAlias = Literal["user", "assistant", "system", "developer", "tool"]
"""The role of a message's author."""
ROLES: Final[tuple[Role, ...]] = ("user", "assistant", "system", "developer", "tool")

_set = object.__setattr__
_PUBLIC: Final = (
    "role",
    "content",
    "id",
    "name",
    "tool_calls",
    "tool_call_id",
    "usage",
    "created_at",
    "metadata",
    "extra",
)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Message:
    """One message of a conversation: validated on construction and immutable.

    `content` is a text or a list of parts; OpenAI-style dicts of parts are accepted. By default
    `id` is a new id that sorts by creation time, and `created_at` is now.

    It copies the containers it is given. `replace` returns a modified copy.
    """

    role: Role
    """The author's role: "user", "assistant", "system", "developer" or "tool"."""
    content: str | tuple[Part, ...] | None
    """The content: a text, parts, or None if there are only tool calls."""
    id: str | int
    """The id of the message in its thread."""
    name: str | None
    """The author's name, in addition to the role."""
    tool_calls: tuple[ToolCall, ...]
    """The tool calls the model requests."""
    tool_call_id: str | None
    """The id of the call this message answers."""
    usage: Usage | None
    """Token usage."""
    created_at: datetime
    """When it was created, in UTC."""
    metadata: Mapping[str, Any]
    """Application metadata; never sent to a model."""
    extra: Mapping[str, Any]
    """What the source dict contained beyond the fields above, for an exact round trip."""
    _source: Mapping[str, Any] | None = field(compare=False)

    def __init__(  # noqa: PLR0913 - each by name
        self,
        role: Role,
        content: str | Iterable[Part | Mapping[str, Any] | str] | None = None,
        *,
        id: str | int | None = None,
        name: str | None = None,
        tool_calls: Iterable[ToolCall | Mapping[str, Any]] | None = None,
        tool_call_id: str | None = None,
        usage: Usage | Mapping[str, Any] | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(role, str) or role not in ROLES:
            raise refusal("role", role, ", ".join(repr(one) for one in ROLES))
        _set(self, "role", plain(role))
        _set(self, "content", as_content(content))
        _set(self, "id", new_id() if id is None else identifier(id, "id"))
        _set(self, "name", optional_text(name, "name"))
        _set(self, "tool_calls", _as_calls(tool_calls))
        _set(self, "tool_call_id", optional_text(tool_call_id, "tool_call_id"))
        _set(self, "usage", as_usage(usage))
        _set(self, "created_at", now() if created_at is None else as_time(created_at, "created_at"))
        _set(self, "metadata", own_mapping(metadata, "metadata"))
        _set(self, "extra", _as_extra(extra))
        _set(self, "_source", None)

    @property
    def text(self) -> str:
        """The text of the message: the texts of its content, of tool results and of a refusal.

        It includes transcripts of audio answers. It never includes URLs, data, ids, names, the
        arguments of calls, or a model's reasoning.
        """
        said = text_of(self.content)
        if not self.extra:
            return said
        return "\n".join([one for one in (said, *_said_beside(self.extra)) if one])

    @classmethod
    def from_openai(cls, raw: Mapping[str, Any]) -> Message:
        """Read a message of Chat Completions, or an item of the Responses API.

        `to_openai` returns an equal dict, unknown keys and parts included.
        """
        if not isinstance(raw, Mapping):
            raise refusal("message", raw, _accepted_for(raw))
        if type(raw) is dict and len(raw) == 2 and type(raw.get("content")) is str:
            role = raw.get("role")
            if type(role) is str and role in ROLES:
                return cls(role, raw["content"])  # The common case: nothing to note.
        try:
            fields, form = openai.read(raw)
            made = cls(**fields)
            _set(made, "_source", openai.source(made, raw, form))
        except RecursionError:
            raise InvalidInput(
                "the message holds itself, or is nested too deep. Hand over plain, finite values."
            ) from None
        return made

    def to_openai(self) -> dict[str, Any]:
        """Return an OpenAI-style dict: the one that was read, or one for a request.

        It contains `id`, `created_at`, `usage` and `metadata` only if the dict that was read did.
        """
        return openai.write(self, self._source)

    def to_stored(self) -> dict[str, Any]:
        """The message as plain values for storage, without absent fields.

        The dict shares the message's containers: encode it, do not modify it.
        """
        made: dict[str, Any] = {"role": self.role, "id": self.id}
        made["created_at"] = to_microseconds(self.created_at)
        if self.content is not None:
            made["content"] = content_to_stored(self.content)
        if self.name is not None:
            made["name"] = self.name
        if self.tool_calls:
            made["tool_calls"] = [call.to_stored() for call in self.tool_calls]
        if self.tool_call_id is not None:
            made["tool_call_id"] = self.tool_call_id
        if self.usage is not None:
            made["usage"] = self.usage.to_stored()
        if self.metadata:
            made["metadata"] = self.metadata
        if self.extra:
            made["extra"] = self.extra
        if self._source:
            made["source"] = self._source
        return made

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Message:
        """Rebuild a message from `to_stored`; it was validated before it was stored.

        The message takes ownership of the values, so pass freshly decoded ones.
        """
        made = object.__new__(cls)
        get = stored.get
        content, calls, usage = get("content"), get("tool_calls"), get("usage")
        _set(made, "role", stored["role"])
        _set(made, "content", content if type(content) is str else content_from_stored(content))
        _set(made, "id", stored["id"])
        _set(made, "name", get("name"))
        _set(
            made, "tool_calls", tuple([ToolCall.from_stored(one) for one in calls]) if calls else ()
        )
        _set(made, "tool_call_id", get("tool_call_id"))
        _set(made, "usage", None if usage is None else Usage.from_stored(usage))
        _set(made, "created_at", from_microseconds(stored["created_at"]))
        _set(made, "metadata", get("metadata") or {})
        _set(made, "extra", get("extra") or {})
        _set(made, "_source", get("source"))
        return made

    def replace(self, **changes: Any) -> Message:
        """Return a copy with these fields changed, validated like a new message."""
        fields = {name: getattr(self, name) for name in _PUBLIC}
        made = type(self)(**{**fields, **changes})
        _set(made, "_source", openai.changed(self._source, changes))
        return made

    __replace__ = replace

    def __hash__(self) -> int:
        return hash((self.role, self.id))

    def __repr__(self) -> str:
        said = self.text
        shown = said if len(said) <= 60 else f"{said[:57]}..."
        calls = "".join(f", calls {call.name}" for call in self.tool_calls)
        return f"<Message {self.id} {self.role}: {shown!r}{calls}>"


def message_of(stored: dict[str, Any]) -> Message:
    """Decode a stored message, with the metadata of the batch it was put in."""
    about = stored.pop("about", None)
    if about is not None:
        stored["metadata"] = {**about, **stored.get("metadata", {})}
    return Message.from_stored(stored)


def _accepted_for(raw: object) -> str:
    """A hint for the error message about a value that is not a message."""
    if any(cls.__module__.startswith("langchain_core.") for cls in type(raw).__mro__):
        return "what ropewalk.adapters.langchain.from_langchain makes of it"
    return "a Message or an OpenAI-style dict"


def as_message(value: Message | Mapping[str, Any]) -> Message:
    """Convert a `Message` or an OpenAI-style dict to a `Message`."""
    return value if isinstance(value, Message) else Message.from_openai(value)


def _as_calls(calls: Any) -> tuple[ToolCall, ...]:
    if not calls:
        return ()
    if isinstance(calls, str | Mapping | ToolCall) or not isinstance(calls, Iterable):
        raise refusal("tool_calls", calls, "a list of ToolCall, or of OpenAI-style dicts")
    return tuple([_as_call(call) for call in calls])


def _as_call(call: Any) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    made = read_call(call) if isinstance(call, Mapping) else None
    if made is None:
        raise refusal("tool_calls", [call], "a list of ToolCall, or of OpenAI-style dicts")
    return made


def _as_extra(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    if not extra:
        return {}
    made = own_mapping(extra, "extra")
    taken = [name for name in _PUBLIC if name in made and name != "extra"]
    if taken:
        raise InvalidInput(
            f"extra holds {taken[0]!r}, which is a field of a message. Hand it over as {taken[0]}=."
        )
    return made


def _said_beside(extra: Mapping[str, Any]) -> list[str]:
    refused, audio = extra.get("refusal"), extra.get("audio")
    spoken = audio.get("transcript") if isinstance(audio, Mapping) else None
    return [one for one in (refused, spoken) if isinstance(one, str)]


# Token usage.


_COUNTS = {
    "input_tokens": ("prompt_tokens", "input_tokens"),
    "output_tokens": ("completion_tokens", "output_tokens"),
    "total_tokens": ("total_tokens",),
}


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer.

    `total_tokens` defaults to the sum. Other fields of the provider, such as details, are in
    `extra`.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = cast("int", None)
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _count(self.input_tokens, "usage.input_tokens")
        _count(self.output_tokens, "usage.output_tokens")
        if self.total_tokens is None:
            object.__setattr__(self, "total_tokens", self.input_tokens + self.output_tokens)
        _count(self.total_tokens, "usage.total_tokens")
        object.__setattr__(self, "extra", own_mapping(self.extra, "usage.extra"))

    @classmethod
    def from_openai(cls, raw: Mapping[str, Any]) -> Usage:
        """Read a usage dict of Chat Completions or the Responses API."""
        if not isinstance(raw, Mapping):
            raise refusal("usage", raw, "a Usage or a mapping")
        rest = dict(raw)
        found: dict[str, Any] = {}
        for name, keys in _COUNTS.items():
            key = next((key for key in keys if rest.get(key) is not None), None)
            found[name] = None if key is None else rest.pop(key)
        counts = (found["input_tokens"] or 0, found["output_tokens"] or 0)
        return cls(*counts, found["total_tokens"], rest)

    def to_openai(self) -> dict[str, Any]:
        """Return a dict with the field names of Chat Completions."""
        return {
            **self.extra,
            "prompt_tokens": self.input_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.total_tokens,
        }

    def to_stored(self) -> dict[str, Any]:
        """The usage as plain values for storage."""
        made: dict[str, Any] = {"input": self.input_tokens, "output": self.output_tokens}
        if self.total_tokens != self.input_tokens + self.output_tokens:
            made["total"] = self.total_tokens
        if self.extra:
            made["extra"] = self.extra
        return made

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Usage:
        """Rebuild a usage from `to_stored`, without validating it again."""
        spent, gained = stored["input"], stored["output"]
        return bare(
            cls,
            input_tokens=spent,
            output_tokens=gained,
            total_tokens=stored.get("total", spent + gained),
            extra=stored.get("extra") or {},
        )


def as_usage(value: Usage | Mapping[str, Any] | None) -> Usage | None:
    """Convert a `Usage` or a provider's dict to a `Usage`."""
    if value is None or isinstance(value, Usage):
        return value
    return Usage.from_openai(value)


def _count(value: Any, name: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise refusal(name, value, "an int that is not negative")


# Ids that sort by creation time.  48 bits of milliseconds, a 20-bit counter and 52 random bits: 24
# characters whose order as text is the order of creation. Within a process every id is greater
# than the one before, from any thread, even while the clock stands still or goes back. Ids of
# different processes, forked ones included, differ by their random bits, which are new for each
# id.


_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]
_SHIFTS = tuple(range(110, -1, -10))
_RANDOM_BITS = 52
_COUNTER_BITS = 20


class Ticks:
    """A strictly increasing number: milliseconds of a nanosecond clock, and a count."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._lock = freed_after_fork(threading.Lock())
        self._last = 0

    def next(self) -> int:
        """Return a number greater than the previous one."""
        at_least = self._clock() // 1_000_000 << _COUNTER_BITS
        with self._lock:
            # A full count carries into the milliseconds, which keeps the order.
            self._last = max(at_least, self._last + 1)
            return self._last


_ticks = Ticks(time.time_ns)


def new_id() -> str:
    """Return a new id: 24 characters, greater than any this process made before."""
    number = _ticks.next() << _RANDOM_BITS
    number |= int.from_bytes(os.urandom(7), "big") >> 4
    pairs = _PAIRS
    return "".join([pairs[number >> shift & 1023] for shift in _SHIFTS])
