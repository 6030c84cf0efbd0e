"""The configuration of typed states: store, limits and framework, and where it is set."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypedDict, Unpack

from ropewalk.codec import Codec, default_codec
from ropewalk.errors import ChangedMeanwhile, InlineSizeExceeded, InvalidInput, NotStorable
from ropewalk.store import KVStore, MemoryStore, Store
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.validation import check_ttl, expect_whole

DEFAULT_INLINE_THRESHOLD_BYTES: Final = 64 * 1024
"""The default limit of an inline value, in bytes."""

IMMUTABLE: Final = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Immutable types, whose values need neither copying nor change detection."""

_here: ContextVar[Runtime | None] = ContextVar("ropewalk-runtime", default=None)


class Framework(StrEnum):
    """A framework that keeps checkpoints of its own."""

    LANGGRAPH = "langgraph"
    LLAMAINDEX = "llamaindex"
    AUTOGEN = "autogen"
    CREWAI = "crewai"
    DEEPAGENTS = "deepagents"
    OPENAI_AGENTS = "openai-agents"


_BY_PACKAGE = {
    "llama-index": Framework.LLAMAINDEX,
    "autogen-agentchat": Framework.AUTOGEN,
    "autogen-core": Framework.AUTOGEN,
    "pyautogen": Framework.AUTOGEN,
    "ag2": Framework.AUTOGEN,
}
"""Package names that differ from the framework's name."""


def framework_of(name: Framework | str) -> Framework:
    """The framework of this name or package name; raises `InvalidInput`."""
    if isinstance(name, str):
        spelled = name.strip().lower().replace("_", "-")
        found = _BY_PACKAGE.get(spelled)
        if found is not None:
            return found
        if spelled in list(Framework):
            return Framework(spelled)
    known = ", ".join(Framework)
    raise InvalidInput(f"{name!r:.80} is not a framework that is known here: {known}")


@dataclass(frozen=True, slots=True)
class Runtime:
    """The store for the large values of typed states, and their limits.

    `default_ttl_seconds` overrides that of the store; None leaves it to the store.
    """

    backend: Store
    inline_threshold_bytes: int = DEFAULT_INLINE_THRESHOLD_BYTES
    default_ttl_seconds: float | None = None
    framework: Framework | str | None = None
    codec: Codec | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.backend, Store):
            raise InvalidInput(
                f"a backend is a Store, such as FileStore(path) or MemoryStore(), or as_store() of "
                f"a KVStore, not {self.backend!r:.80}"
            )
        expect_whole(self.inline_threshold_bytes, 1, "inline_threshold_bytes")
        check_ttl(self.default_ttl_seconds)
        if self.framework is not None:
            object.__setattr__(self, "framework", framework_of(self.framework))
        if self.codec is not None and not isinstance(self.codec, Codec):
            raise InvalidInput(f"a codec is a Codec, not {self.codec!r:.80}")

    @property
    def coding(self) -> Codec:
        """The codec of the values."""
        return default_codec if self.codec is None else self.codec

    def encode(self, value: Any) -> bytes:
        """Encode a value that other threads may be modifying; raises `NotStorable`."""
        return self.coding.encode(value)

    def expires_at(self) -> int | None:
        """When content stored now expires, in microseconds since 1970; None for never."""
        seconds = self.default_ttl_seconds
        if seconds is None:
            seconds = self.backend.default_ttl_seconds
        return None if seconds is None else time.time_ns() // 1000 + round(seconds * 1e6)

    def inline_copy(self, field: str, value: Any) -> Any:
        """A copy of a value for an inline field.

        Raises `InlineSizeExceeded`, and `NotStorable` for a value that could not be restored.
        """
        with saying(field):
            data = self.encode(value)
        if len(data) > self.inline_threshold_bytes:
            raise InlineSizeExceeded(field, len(data), self.inline_threshold_bytes)
        return value if type(value) in IMMUTABLE else self.coding.decode(data)


@contextmanager
def saying(field: str) -> Iterator[None]:
    """Add the name of the field to errors."""
    try:
        yield
    except (NotStorable, ChangedMeanwhile) as error:
        path = error.path.replace("value", f"state.{field}", 1)
        if isinstance(error, ChangedMeanwhile):
            raise ChangedMeanwhile(path) from error
        raise NotStorable(error.reason, path) from error


class Settings(TypedDict, total=False):
    """The settings of a runtime."""

    backend: Store
    inline_threshold_bytes: int
    default_ttl_seconds: float | None
    framework: Framework | str | None
    codec: Codec | None


class _Process:
    """The process-wide runtime."""

    def __init__(self) -> None:
        self._lock = freed_after_fork(threading.Lock())
        self.runtime: Runtime | None = None

    def change(self, settings: Settings) -> Runtime:
        with self._lock:
            self.runtime = _changed(self.runtime, settings)
            return self.runtime


_process = _Process()


def get_config() -> Runtime:
    """The current runtime: that of `using`, else that of `configure`.

    Without either, values go to a `MemoryStore` that lives as long as this process.
    """
    return _here.get() or _process.runtime or _process.change({})


def configure(**settings: Unpack[Settings]) -> Runtime:
    """Change process-wide settings; omitted ones stay. Returns the runtime.

    Existing states keep the runtime they were created with.
    """
    return _process.change(settings)


def create_runtime(runtime: Runtime | None = None, **settings: Unpack[Settings]) -> Runtime:
    """Create a runtime with these settings; the others come from `base`, or the current runtime."""
    if runtime is not None and not isinstance(runtime, Runtime):
        raise InvalidInput(f"a runtime is what create_runtime() gives, not {runtime!r:.80}")
    if runtime is None and "backend" in settings:
        # The process's store is created only if needed.
        runtime = _here.get() or _process.runtime
    else:
        runtime = get_config() if runtime is None else runtime
    return _changed(runtime, settings)


@contextmanager
def using(runtime: Runtime) -> Iterator[Runtime]:
    """Use a runtime within a `with` block, in this task or thread only."""
    if not isinstance(runtime, Runtime):
        raise InvalidInput(f"using() takes a Runtime, not {runtime!r:.80}")
    token = _here.set(runtime)
    try:
        yield runtime
    finally:
        _here.reset(token)


def runtime_for(
    runtime: Runtime | None, backend: Store | KVStore | None, threshold: int | None = None
) -> Runtime:
    """The runtime for a constructor's keyword arguments; None leaves a setting as it is."""
    settings: Settings = {}
    if backend is not None:
        settings["backend"] = backend.as_store() if isinstance(backend, KVStore) else backend
    if threshold is not None:
        settings["inline_threshold_bytes"] = threshold
    return create_runtime(runtime, **settings)


def _changed(before: Runtime | None, settings: Settings) -> Runtime:
    unknown = settings.keys() - Settings.__annotations__.keys()
    if unknown:
        known = ", ".join(Settings.__annotations__)
        raise InvalidInput(f"a runtime has no {', '.join(sorted(unknown))}; it has {known}")
    if not settings and before is not None:
        return before
    if before is None and "backend" not in settings:
        before = Runtime(MemoryStore())
    return Runtime(**settings) if before is None else replace(before, **settings)
