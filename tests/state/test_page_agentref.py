"""The examples and the invariants of the page, where neither Postgres nor a framework is needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ropewalk import AgentState as AgentRefState
from ropewalk import (
    AmbiguousFrameworkError,
    ContentRef,
    Externalized,
    Inline,
    InlineSizeExceeded,
    auto_adapt,
    detect_active_framework,
)
from ropewalk import FileStore as FilesystemCAS
from ropewalk import MemoryStore as InMemoryCAS
from ropewalk import SqliteStore as OtherCAS
from ropewalk import migrate as migrate_cas
from ropewalk.adapters import StateAdapter


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class ResearchState(AgentRefState):
    current_step: Inline[str]
    iteration: Inline[int]
    citations: Inline[list[str]]
    retrieved_docs: Externalized[list[dict]]  # type: ignore[type-arg]
    raw_html: Externalized[str]


class RAGState(AgentRefState):
    question: Inline[str]
    docs: Externalized[list[dict]]  # type: ignore[type-arg]
    answer: Inline[str]


def retrieve(state: Any) -> dict[str, Any]:
    docs = [{"id": "doc-1", "text": "large retrieved text"}]
    return {"docs": docs}


def answer(state: Any) -> dict[str, Any]:
    return {"answer": f"Read {len(state['docs'])} document(s)."}


@pytest.fixture
def blobs() -> Iterator[FilesystemCAS]:
    with FilesystemCAS("./state_blobs") as opened:
        yield opened


# Examples.


def test_a_state_is_declared_and_used(blobs: FilesystemCAS) -> None:
    state = ResearchState(backend=blobs, current_step="fetch", iteration=1, citations=[])
    state.retrieved_docs = [{"id": "doc-1"}]
    state.raw_html = "<html>" * 10_000
    checkpoint = state.to_checkpoint_dict()

    assert len(json.dumps(checkpoint)) < 700
    assert ResearchState.from_checkpoint_dict(checkpoint, backend=blobs) == state


def test_nodes_work_on_references_that_an_adapter_puts_in_and_takes_out(
    blobs: FilesystemCAS,
) -> None:
    adapter = StateAdapter(RAGState, backend=blobs, inline_threshold_bytes=64 * 1024)
    held: dict[str, Any] = {"question": "?"}
    for node in (retrieve, answer):  # what a graph does with wrapped nodes
        seen = adapter.hydrate(held)
        held |= adapter.externalize(node(seen), since=seen)

    assert held["answer"] == "Read 1 document(s)."
    assert "large retrieved text" not in json.dumps(held)


def test_every_backend_is_passed_directly() -> None:
    memory_adapter = StateAdapter(RAGState, backend=InMemoryCAS())
    local_adapter = StateAdapter(RAGState, backend=FilesystemCAS("./state_blobs"))
    other_adapter = StateAdapter(
        RAGState,
        backend=OtherCAS(
            "./other", backend_id="postgres:agentref", default_ttl_seconds=7 * 24 * 3600
        ),
    )

    for adapter in (memory_adapter, local_adapter, other_adapter):
        update = adapter.externalize({"docs": [{"id": 1}]})
        assert adapter.hydrate(update)["docs"] == [{"id": 1}]
        adapter.backend.close()


def test_payloads_are_copied_without_rewriting_old_checkpoints() -> None:
    old = FilesystemCAS("./state_blobs")
    state = RAGState(backend=old, question="?", docs=[{"id": "doc-1"}])
    checkpoint = state.to_checkpoint_dict()
    new = OtherCAS("./other", backend_id="postgres:agentref", backend_aliases=[old.backend_id])

    migrate_cas(old, new)
    old.close()

    assert RAGState.from_checkpoint_dict(checkpoint, backend=new).docs == [{"id": "doc-1"}]
    new.close()


# Invariants.


def test_externalized_payload_bytes_do_not_appear_in_checkpoint_bytes(
    blobs: FilesystemCAS,
) -> None:
    state = ResearchState(backend=blobs, raw_html="SECRET PAYLOAD " * 1000)
    state.retrieved_docs = [{"text": "SECRET PAYLOAD"}]
    state.retrieved_docs[0]["more"] = "SECRET PAYLOAD"

    assert "SECRET" not in json.dumps(state.to_checkpoint_dict())
    assert "SECRET" not in repr(state)


def test_identical_payloads_produce_identical_content_hashes(blobs: FilesystemCAS) -> None:
    one = RAGState(backend=blobs, docs=[{"id": 1}, {"id": 2}])
    other = RAGState(backend=InMemoryCAS(), docs=[{"id": 1}])
    other.docs.append({"id": 2})

    assert one.ref("docs").hash == other.ref("docs").hash


def test_oversized_inline_values_raise() -> None:
    state = RAGState(backend=InMemoryCAS(), question="?")

    with pytest.raises(InlineSizeExceeded):
        state.answer = "x" * (64 * 1024 + 1)
    with pytest.raises(InlineSizeExceeded):
        RAGState(backend=InMemoryCAS(), question="x" * 100_000)
    with pytest.raises(InlineSizeExceeded):
        RAGState.from_checkpoint_dict({"answer": "x" * 100_000})
    with pytest.raises(InlineSizeExceeded):
        StateAdapter(RAGState, inline_threshold_bytes=10).externalize({"answer": "x" * 11})


def test_checkpoint_round_trips_preserve_hydrated_values(blobs: FilesystemCAS) -> None:
    state = ResearchState(
        backend=blobs,
        current_step="s",
        iteration=3,
        citations=["a", "b"],
        retrieved_docs=[{"id": n, "k": (n, {n})} for n in range(500)],
        raw_html="<html>" * 50_000,
    )
    told = json.dumps(state.to_checkpoint_dict())
    again = ResearchState.from_checkpoint_dict(json.loads(told), backend=blobs)

    assert again.to_hydrated_dict() == state.to_hydrated_dict()


def test_ambiguous_framework_detection_raises_a_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("langgraph", "llama_index", "autogen_agentchat"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))

    with pytest.raises(AmbiguousFrameworkError, match=r"langgraph, llamaindex, autogen.*explicit="):
        detect_active_framework()
    with pytest.raises(AmbiguousFrameworkError):
        auto_adapt(RAGState, backend=InMemoryCAS())


def test_older_checkpoints_hydrate_while_the_content_exists(blobs: FilesystemCAS) -> None:
    state = RAGState(backend=blobs, docs=[])
    checkpoints = []
    for n in range(20):
        state.docs.append({"id": n})
        checkpoints.append(state.to_checkpoint_dict())
    blobs.gc(recent=1)

    for n, checkpoint in enumerate(checkpoints):
        old = RAGState.from_checkpoint_dict(checkpoint, backend=blobs)
        assert [doc["id"] for doc in old.docs] == list(range(n + 1))
    assert isinstance(ContentRef.from_dict(checkpoints[0]["docs"]["ropewalk_ref"]), ContentRef)
