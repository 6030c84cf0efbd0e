"""Runtimes: which store and which limits apply, and who says so."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from ropewalk import (
    AgentState,
    ContentRef,
    Externalized,
    Inline,
    MemoryStore,
    configure,
    create_runtime,
    get_config,
)
from ropewalk.codec import Codec
from ropewalk.errors import InlineSizeExceeded, InvalidInput, MissingContent, UnknownField
from ropewalk.state import Framework, Runtime, using, validate_checkpoint, validate_state
from ropewalk.state import runtime as process


class Small(AgentState):
    note: Inline[str]
    docs: Externalized[Any]


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_process", process._Process())


def test_without_a_word_values_go_to_one_memory_store_of_the_process() -> None:
    assert isinstance(get_config().backend, MemoryStore)
    assert get_config() is get_config()
    assert Small(docs=[1]).runtime is get_config()


@pytest.mark.parametrize(
    "settings",
    [
        {"inline_threshold_bytes": 0},
        {"inline_threshold_bytes": -5},
        {"inline_threshold_bytes": 1.5},
        {"inline_threshold_bytes": True},
        {"default_ttl_seconds": 0},
        {"default_ttl_seconds": -1},
        {"default_ttl_seconds": "week"},
        {"framework": "django"},
        {"framework": 5},
        {"codec": "json"},
        {"backend": None},
        {"backend": "memory://"},
        {"threshold": 5},
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    for change in (configure, create_runtime):
        with pytest.raises(InvalidInput):
            change(**settings)


def test_configure_changes_what_is_named_and_keeps_the_rest() -> None:
    store = MemoryStore()
    configure(backend=store, framework="langgraph", default_ttl_seconds=5)
    configure(inline_threshold_bytes=10)
    configure(framework=None)

    assert get_config() == Runtime(store, 10, 5)
    with pytest.raises(InlineSizeExceeded):
        Small(note="x" * 11)


def test_a_state_keeps_the_runtime_that_it_was_made_with() -> None:
    state = Small(note="x")
    before = state.runtime
    configure(inline_threshold_bytes=1)
    state.note = "longer than that"

    assert state.runtime is before


def test_create_runtime_takes_named_settings_then_the_runtime_then_what_applies() -> None:
    first, second = MemoryStore(), MemoryStore()
    configure(backend=first, inline_threshold_bytes=7)
    base = create_runtime(default_ttl_seconds=9)

    assert base == Runtime(first, 7, 9)
    assert create_runtime(base, backend=second) == Runtime(second, 7, 9)
    assert get_config() == Runtime(first, 7)


def test_a_runtime_knows_frameworks_by_any_usual_name() -> None:
    store = MemoryStore()

    assert Runtime(store, framework="llama_index").framework is Framework.LLAMAINDEX
    assert Runtime(store, framework="OpenAI-Agents").framework is Framework.OPENAI_AGENTS
    assert Runtime(store, framework=Framework.CREWAI).framework is Framework.CREWAI


def test_using_applies_in_its_block_only() -> None:
    runtime, inner = Runtime(MemoryStore()), Runtime(MemoryStore())
    with using(runtime):
        with using(inner):
            assert get_config() is inner
        assert get_config() is runtime
        configure(inline_threshold_bytes=5)
        assert get_config() is runtime

    assert get_config().inline_threshold_bytes == 5


def test_using_is_not_seen_by_other_threads_and_tasks() -> None:
    runtime, seen = Runtime(MemoryStore()), list[Runtime]()

    async def task(mine: Runtime) -> Runtime:
        with using(mine):
            await asyncio.sleep(0)
            return get_config()

    async def both() -> list[Runtime]:
        return await asyncio.gather(*[task(Runtime(MemoryStore())) for _ in range(2)])

    with using(runtime):
        thread = threading.Thread(target=lambda: seen.append(get_config()))
        thread.start()
        thread.join()
    one, other = asyncio.run(both())

    assert seen[0] is not runtime
    assert one is not other


def test_a_twin_runs_with_what_applies_to_its_caller() -> None:
    store = MemoryStore()
    ref = Small(backend=store, docs=[1]).ref("docs")

    async def run() -> Any:
        with using(Runtime(store)):
            return await ref.aresolve()

    assert asyncio.run(run()) == [1]


def test_a_codec_of_the_runtime_is_used() -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    from ropewalk.codec import Registry

    registry = Registry()
    registry.register(Point, encode=lambda point: point.x, decode=Point)
    runtime = Runtime(MemoryStore(), codec=Codec(registry))
    state = Small(runtime=runtime, docs=[Point(3)])
    again = Small.from_checkpoint_dict(state.to_checkpoint_dict(), runtime=runtime)

    assert again.docs[0].x == 3


def test_importing_and_configuring_makes_no_store_of_the_process() -> None:
    program = (
        "import ropewalk\n"
        "from ropewalk.state import runtime\n"
        "store = ropewalk.MemoryStore()\n"
        "ropewalk.create_runtime(backend=store)\n"
        "assert runtime._process.runtime is None\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)


# Invariants on demand.


def test_a_valid_state_and_its_checkpoint_pass() -> None:
    state = Small(backend=MemoryStore(), note="x", docs=[1])
    validate_state(state, require_content=True)

    validate_checkpoint(Small, state.to_checkpoint_dict(), runtime=state.runtime)


def test_what_does_not_hold_is_said() -> None:
    store = MemoryStore()
    gone = ContentRef("ab" * 32, "memory", "list", 1)
    with pytest.raises(UnknownField):
        validate_checkpoint(Small, {"dosc": 1}, backend=store)
    with pytest.raises(InlineSizeExceeded):
        validate_checkpoint(Small, {"note": "x" * 11}, inline_threshold_bytes=10)
    with pytest.raises(InvalidInput, match="docs"):
        validate_checkpoint(Small, {"docs": [1]}, backend=store)
    with pytest.raises(KeyError, match="other"):
        validate_checkpoint(Small, {"docs": gone}, backend=MemoryStore(backend_id="other"))
    with pytest.raises(InvalidInput):
        validate_checkpoint(Small, [], backend=store)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        validate_state({"note": "x"})  # type: ignore[arg-type]

    validate_checkpoint(Small, {"docs": gone}, backend=store)
    with pytest.raises(MissingContent):
        validate_checkpoint(Small, {"docs": gone}, backend=store, require_content=True)
