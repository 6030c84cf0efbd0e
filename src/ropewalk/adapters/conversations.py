"""What the checkpointers of pyagenity and its successor agentflow share.

They translate between the framework's objects and `ThreadCheckpointer`. Both frameworks call the
asynchronous methods; these are twins, so the conversion also runs outside the event loop.

Messages and records round-trip without loss. Fields that Ropewalk does not have are in `extra`,
under the framework's names; a message that would still not come back equal is kept there whole.
"""

from __future__ import annotations

import enum
import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args, get_type_hints

from pydantic import BaseModel

from ropewalk.codec import Classes, Codec
from ropewalk.codec.registry import can_declare
from ropewalk.errors import InvalidInput, UndeclaredClass
from ropewalk.store import Store
from ropewalk.store.asynchronous import Threads, twin
from ropewalk.threads import (
    AudioPart,
    ImagePart,
    Message,
    OtherPart,
    Part,
    TextPart,
    ThreadCheckpointer,
    ThreadInfo,
    ToolCall,
    ToolResult,
    Usage,
)
from ropewalk.threads.checkpointer import DAY

if TYPE_CHECKING:
    from ropewalk.store import KVStore

Config = Mapping[str, Any]


@contextmanager
def _naming_the_state() -> Iterator[None]:
    """Tell the user what to do where the class of a state was not declared."""
    try:
        yield
    except UndeclaredClass as error:
        raise UndeclaredClass(
            error.name,
            f"{error}. If it belongs to the state of the graph, it is enough to name that: "
            "RopewalkCheckpointer(store, types=[MyState])",
        ) from None


class SharedCheckpointer:
    """The framework's checkpointer interface on top of a `ThreadCheckpointer`."""

    models: ClassVar[Models]

    def __init__(
        self,
        store: Store | KVStore | str | PathLike[str] | None = None,
        *,
        types: Iterable[type] = (),
        pickle_key: bytes | None = None,
        classes: Classes = "plain",
        cache_seconds: float | None = DAY,
    ) -> None:
        self._codec = Codec(pickle_key=pickle_key, classes=classes)
        self.models.declare(self._codec)
        declare(self._codec, types)
        self.threads: ThreadCheckpointer[Any] = ThreadCheckpointer(
            store, codec=self._codec, cache_seconds=cache_seconds
        )
        """The conversations themselves: filters, history, and `put` in one step."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self.threads.store!r}>"

    @property
    def __orig_class__(self) -> Any:
        """The parametrized class, which names the class of the state."""
        return self.__dict__.get("__orig_class__")

    @__orig_class__.setter
    def __orig_class__(self, called: Any) -> None:
        self.__dict__["__orig_class__"] = called
        declare(self._codec, [one for one in get_args(called) if isinstance(one, type)])

    @property
    def _threads(self) -> Threads:
        return self.threads.store._threads

    def _config(self, config: Config) -> dict[str, Any]:
        """The thread a call addresses. The framework's placeholder user counts as no user."""
        named = {
            name: config[name] for name in ("thread_id", "user_id", "branch") if name in config
        }
        if named.get("user_id") == self.models.nobody:
            del named["user_id"]
        return named

    # Lifecycle.

    def setup(self) -> None:
        """Check that the store answers. No other setup is needed."""
        self.threads.setup()

    def release(self) -> bool:
        """Close the store if this checkpointer opened it."""
        return self.threads.release()

    async def arelease(self) -> bool:
        """The asynchronous twin of `release`."""
        return await self.threads.arelease()

    # State.

    def put_state(self, config: Config, state: Any) -> Any:
        """Store a state as the thread's newest, and return it."""
        return self.threads.put_state(self._config(config), state)

    def get_state(self, config: Config) -> Any:
        """Return a copy of the newest state, or None."""
        with _naming_the_state():
            return self.threads.get_state(self._config(config))

    def clear_state(self, config: Config) -> bool:
        """Remove the state from the thread and the cache."""
        return self.threads.clear_state(self._config(config))

    def put_state_cache(self, config: Config, state: Any) -> Any:
        """Cache a state, and return it. The entry may be evicted at any time."""
        return self.threads.put_state_cache(self._config(config), state)

    def get_state_cache(self, config: Config) -> Any:
        """Return the cached state, or None if it has expired or a newer state was stored."""
        with _naming_the_state():
            return self.threads.get_state_cache(self._config(config))

    # Messages.

    def put_messages(
        self,
        config: Config,
        messages: Sequence[Any],
        metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Append messages, all of them or none; stored ones are not duplicated."""
        ours = [self.models.to_ours(one) for one in messages]
        return self.threads.put_messages(self._config(config), ours, metadata)

    def get_message(self, config: Config, message_id: str | int | None = None) -> Any:
        """Return a message by its id, or the latest; raises `MessageNotFound`, an `IndexError`."""
        return self.models.to_theirs(self.threads.get_message(self._config(config), message_id))

    def list_messages(
        self,
        config: Config,
        search: str | None = None,
        offset: int | None = None,
        limit: int | None = None,
    ) -> list[Any]:
        """Return messages in order. `search` finds any part of their text, ignoring case."""
        page = self.threads.list_messages(self._config(config), search, offset, limit)
        return [self.models.to_theirs(one) for one in page]

    def delete_message(self, config: Config, message_id: str | int) -> bool:
        """Delete a message; raises `MessageNotFound`, an `IndexError`."""
        return self.threads.delete_message(self._config(config), message_id)

    # The record of a thread.

    def put_thread(self, config: Config, thread_info: Any) -> bool:
        """Store the record of a thread."""
        named = self._config(config)
        return self.threads.put_thread(named, self.models.record_to_ours(thread_info, named))

    def get_thread(self, config: Config) -> Any:
        """Return the record of a thread, or None if the thread does not exist."""
        found = self.threads.get_thread(self._config(config))
        return None if found is None else self.models.record_to_theirs(found)

    def list_threads(
        self,
        config: Config,
        search: str | None = None,
        offset: int | None = None,
        limit: int | None = None,
    ) -> list[Any]:
        """Return the threads of the config's user, most recently changed first."""
        page = self.threads.list_threads(self._config(config), search, offset, limit)
        return [self.models.record_to_theirs(one) for one in page]

    def clean_thread(self, config: Config) -> bool:
        """Empty a thread: state, cache, messages and record. Returns False if it was empty."""
        return self.threads.clean_thread(self._config(config))

    # The asynchronous interface.

    asetup = twin(setup)
    aput_state = twin(put_state)
    aget_state = twin(get_state)
    aclear_state = twin(clear_state)
    aput_state_cache = twin(put_state_cache)
    aget_state_cache = twin(get_state_cache)
    aput_messages = twin(put_messages)
    aget_message = twin(get_message)
    alist_messages = twin(list_messages)
    adelete_message = twin(delete_message)
    aput_thread = twin(put_thread)
    aget_thread = twin(get_thread)
    alist_threads = twin(list_threads)
    aclean_thread = twin(clean_thread)


# Conversion of messages and records from and to the framework's classes.


_HANDLED: Final = frozenset("message_id role content timestamp metadata usages tools_calls".split())
_WHOLE: Final = "message"
"""The key in `extra` of a message that is kept whole."""
_BESIDE: Final = "agentflow"
"""The key in a record's metadata of fields that Ropewalk does not have."""
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of a message without one: a constant, so that the message stays equal."""
_BLOCKS: Final = frozenset(
    "text image audio video document data tool_call remote_tool_call tool_result reasoning "
    "annotation error".split()
)


class Models:
    """The classes of a framework.

    `nobody` is the framework's placeholder where a config names no user. `others` are further
    classes that a state may contain.
    """

    def __init__(
        self, state: Any, thread_info: Any, *, nobody: str, others: tuple[type, ...] = ()
    ) -> None:
        self.state, self.thread_info = state, thread_info
        self.nobody, self.others = nobody, others
        # Releases keep the class of messages in different modules; the state always refers to it.
        (self.message,) = get_args(state.model_fields["context"].annotation)
        times = get_args(self.message.model_fields["timestamp"].annotation)
        self._counts_seconds = datetime not in times
        """Whether the time of a message is a number of seconds; else it is a local datetime."""

    def declare(self, codec: Codec) -> None:
        """Let a codec store and read the framework's own classes.

        Releases keep them in different modules, but under one stored name. A later release
        therefore reads what an earlier one stored, and agentflow what pyagenity stored.
        """
        for cls in named_classes([self.state, *self.others]):
            name = f"agentflow.{cls.__qualname__}"
            if cls is self.message and self._counts_seconds:
                codec.registry.register(cls, name=name, version=2, migrations={1: _in_seconds})
            else:
                codec.registry.register(cls, name=name)

    # Messages.

    def to_ours(self, given: Any) -> Message:
        """Convert a message of the framework to ours."""
        if not isinstance(given, self.message):
            raise InvalidInput(
                f"messages are of {self.message.__module__}.{self.message.__qualname__}, "
                f"not a {type(given).__name__}"
            )
        made = self._plain(given)
        if self._comes_back(made, given):
            return made
        return made.replace(extra={**made.extra, _WHOLE: given})

    def _comes_back(self, made: Message, given: Any) -> bool:
        try:
            return bool(self.to_theirs(made) == given)
        except ValueError:
            return False  # It was changed after its validation.

    def to_theirs(self, message: Message) -> Any:
        """Convert a message of ours to the framework's."""
        whole = message.extra.get(_WHOLE)
        if isinstance(whole, self.message):
            return whole.model_copy(update={"metadata": dict(message.metadata)})
        fields = self.message.model_fields
        known = {name: value for name, value in message.extra.items() if name in fields}
        beside = {name: value for name, value in message.extra.items() if name not in fields}
        metadata = dict(message.metadata)
        if beside:
            metadata.setdefault("extra", beside)
        if not self._is_time(known.get("timestamp")):
            del known["timestamp"]  # From a release with another representation of times.
        return self.message.model_validate(
            {
                "message_id": message.id,
                "role": "system" if message.role == "developer" else message.role,
                "content": _blocks(message),
                "metadata": metadata,
                "timestamp": self._timestamp(message.created_at),
                "tools_calls": [call.to_openai() for call in message.tool_calls] or None,
                "usages": _usages(message.usage),
                **known,
            }
        )

    def _plain(self, given: Any) -> Message:
        extra = {
            name: getattr(given, name)
            for name, field in self.message.model_fields.items()
            if name not in _HANDLED and getattr(given, name) != field.get_default()
        }
        created_at = _time(given.timestamp)
        if given.timestamp is None or self._timestamp(created_at) != given.timestamp:
            extra["timestamp"] = given.timestamp
        elif isinstance(given.timestamp, datetime):
            extra["timestamp"] = given.timestamp  # In the reader's local time zone.
        usage, calls = _usage(given.usages), _calls(given.tools_calls)
        if usage is None and given.usages is not None:
            extra["usages"] = given.usages.model_dump()
        if not calls and given.tools_calls is not None:
            extra["tools_calls"] = given.tools_calls
        return Message(
            given.role,
            given.content if isinstance(given.content, str) else map(_part, given.content),
            id=given.message_id,
            tool_calls=calls,
            usage=usage,
            created_at=created_at,
            metadata=given.metadata,
            extra=extra,
        )

    def _is_time(self, value: Any) -> bool:
        return value is None or isinstance(value, datetime) is not self._counts_seconds

    def _timestamp(self, time: datetime) -> float | datetime:
        return time.timestamp() if self._counts_seconds else _local(time)

    # Records.

    def record_to_ours(self, given: Any, config: Mapping[str, Any]) -> ThreadInfo:
        """Convert the framework's record of a thread to ours."""
        if not isinstance(given, self.thread_info):
            raise InvalidInput(f"a record is a ThreadInfo, not a {type(given).__name__}")
        beside = {
            name: getattr(given, name)
            for name, field in self.thread_info.model_fields.items()
            if name not in ("thread_id", "thread_name", "user_id", "metadata")
            and getattr(given, name) is not None
        }
        metadata = dict(given.metadata or {})
        if beside:
            metadata[_BESIDE] = beside
        return ThreadInfo(
            given.thread_id,
            given.thread_name,
            config.get("user_id") if given.user_id == self.nobody else given.user_id,
            metadata,
            updated_at=None if given.updated_at is None else _time(given.updated_at),
        )

    def record_to_theirs(self, info: ThreadInfo) -> Any:
        """Convert our record of a thread to the framework's."""
        metadata = dict(info.metadata)
        beside = metadata.pop(_BESIDE, {})
        times = {} if info.updated_at is None else {"updated_at": _local(info.updated_at)}
        return self.thread_info.model_validate(
            {
                "thread_id": info.thread_id,
                "thread_name": info.thread_name,
                "user_id": info.user_id,
                "metadata": metadata or None,
                **times,
                **{name: beside[name] for name in beside if name in self.thread_info.model_fields},
            }
        )


# Times.


def _time(timestamp: datetime | float | None) -> datetime:
    if timestamp is None:
        return _NO_TIME
    if isinstance(timestamp, datetime):
        return timestamp.astimezone(UTC)
    return datetime.fromtimestamp(timestamp, UTC)


def _local(time: datetime) -> datetime:
    return time.astimezone().replace(tzinfo=None)


def _in_seconds(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a message, with its datetime converted to seconds."""
    time = fields["timestamp"]
    return {**fields, "timestamp": None if time is None else time.timestamp()}


# Usage and calls.


def _usage(usages: Any) -> Usage | None:
    if usages is None:
        return None
    rest = usages.model_dump(exclude_defaults=True)
    spent, gained = rest.pop("prompt_tokens"), rest.pop("completion_tokens")
    try:
        return Usage(spent, gained, rest.pop("total_tokens"), rest)
    except InvalidInput:
        return None  # For example a negative count.


def _usages(usage: Usage | None) -> dict[str, Any] | None:
    return None if usage is None else usage.to_openai()


def _calls(given: list[dict[str, Any]] | None) -> tuple[ToolCall, ...]:
    try:
        calls = Message("assistant", tool_calls=given).tool_calls
    except InvalidInput:
        return ()
    # Parse only what would be written back exactly.
    return calls if [call.to_openai() for call in calls] == given else ()


# Content.


def _part(block: Any) -> Part:
    """Convert a block of the framework to a part."""
    data, kind = block.model_dump(exclude_defaults=True), block.type
    data.pop("type", None)
    if kind == "text":
        return TextPart(data.pop("text"), extra=data)
    if kind == "tool_call":
        id, name, arguments = data.pop("id"), data.pop("name"), data.pop("args", {})
        return ToolCall(id, name, arguments, "tool_use", data)
    if kind == "tool_result":
        id, failed, output = data.pop("call_id"), data.pop("is_error", None), block.output
        if not isinstance(output, str):
            return ToolResult(id, None, failed, data)
        del data["output"]
        return ToolResult(id, output, failed, data)
    url = _image_url(data) if kind == "image" else None
    return OtherPart({"type": kind, **data}) if url is None else ImagePart(url)


def _image_url(data: dict[str, Any]) -> str | None:
    """The URL of an image without other fields."""
    media = data.get("media", {})
    if len(data) != 1:
        return None
    if media.keys() == {"url"}:
        return str(media["url"])
    if media.keys() == {"kind", "data_base64", "mime_type"} and media["kind"] == "data":
        return f"data:{media['mime_type']};base64,{media['data_base64']}"
    return None


def _blocks(message: Message) -> list[dict[str, Any]]:
    """Convert the content of a message of ours to blocks of the framework."""
    content = message.content
    parts: tuple[Part, ...] = ()
    if isinstance(content, str):
        parts = (TextPart(content),)
    elif content is not None:
        parts = content
    if message.tool_call_id is not None and not any(isinstance(p, ToolResult) for p in parts):
        # In the framework, a block names the call that was answered.
        return [{"type": "tool_result", "call_id": message.tool_call_id, "output": message.text}]
    return [_block(part) for part in parts]


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text, **part.extra}
    if isinstance(part, ToolCall):
        named = {"id": part.id, "name": part.name, "args": _arguments(part)}
        return {"type": "tool_call", **named, **part.extra}
    if isinstance(part, ToolResult):
        made: dict[str, Any] = {"type": "tool_result", "call_id": part.tool_call_id}
        if part.content is not None:
            said = part.content
            made["output"] = said if isinstance(said, str) else [_block(one) for one in said]
        return {**made, "is_error": bool(part.is_error), **part.extra}
    if isinstance(part, ImagePart):
        return {"type": "image", "media": _media(part.url, part.file_id)}
    if isinstance(part, AudioPart):
        media = {"kind": "data", "data_base64": part.data, "mime_type": f"audio/{part.format}"}
        return {"type": "audio", "media": media}
    data = part.to_openai()
    if data.get("type") in _BLOCKS:
        return data
    # From elsewhere: the framework has no block for unknown data.
    held = json.dumps(data, default=str).encode()
    return {
        "type": "data",
        "mime_type": "application/json",
        "data_base64": b64encode(held).decode(),
    }


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        found = call.parsed()
    except InvalidInput:
        found = None
    return found if isinstance(found, dict) else {"arguments": call.arguments}


def _media(url: str | None, file_id: str | None) -> dict[str, Any]:
    if url is None:
        return {"kind": "file_id", "file_id": file_id}
    head, mark, data = url.partition(";base64,")
    if mark and head.startswith("data:"):
        return {"kind": "data", "data_base64": data, "mime_type": head.removeprefix("data:")}
    return {"url": url}


# The classes that a state of the framework may contain: those of its fields.


def declare(codec: Codec, types: Iterable[type]) -> None:
    """Let a codec store and read these classes, and those of their fields.

    Existing declarations of the program take precedence.
    """
    for cls in named_classes(types):
        if codec.registry.of(cls) is None and can_declare(cls):
            codec.registry.register(cls)


def named_classes(types: Iterable[type]) -> list[type]:
    """These classes, and those of their fields, recursively."""
    found: dict[type, None] = {}
    waiting = list(types)
    while waiting:
        cls = waiting.pop()
        if cls in found:
            continue
        found[cls] = None
        for hint in _hints(cls):
            waiting.extend(one for one in _classes_in(hint) if one not in found)
    return list(found)


def _hints(cls: type) -> Iterable[Any]:
    if issubclass(cls, BaseModel):
        return [field.annotation for field in cls.model_fields.values()]
    if issubclass(cls, enum.Enum) or not can_declare(cls):
        return ()
    try:
        return get_type_hints(cls).values()
    except NameError:
        return ()  # An unresolvable annotation: the program has to declare the class.


def _classes_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and hint is not BaseModel and can_declare(hint):
        yield hint
    for inner in get_args(hint):
        yield from _classes_in(inner)
