"""The examples of the page about typed state that need Postgres."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ropewalk import AgentState as AgentRefState
from ropewalk import ContentRef, Externalized, Inline
from ropewalk import FileStore as FilesystemCAS
from ropewalk import MemoryStore as InMemoryCAS
from ropewalk import PostgresStore as PostgresCAS
from ropewalk import migrate as migrate_cas
from ropewalk.adapters import StateAdapter as LangGraphAdapter
from ropewalk.errors import MissingContent, UnresolvedReferenceError
from ropewalk.state import Runtime, using


class RAGState(AgentRefState):
    question: Inline[str]
    docs: Externalized[list[dict]]  # type: ignore[type-arg]
    answer: Inline[str]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def microseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


def test_all_backends_are_passed_directly_to_adapters(postgres_url: str) -> None:
    memory_adapter = LangGraphAdapter(RAGState, backend=InMemoryCAS())
    local_adapter = LangGraphAdapter(RAGState, backend=FilesystemCAS("./state_blobs"))
    postgres_adapter = LangGraphAdapter(
        RAGState,
        backend=PostgresCAS(
            dsn=postgres_url,
            backend_id="postgres:agentref",
            default_ttl_seconds=7 * 24 * 3600,
        ),
    )

    for adapter in (memory_adapter, local_adapter, postgres_adapter):
        update = adapter.externalize({"docs": [{"id": 1}]})
        assert adapter.hydrate(json.loads(json.dumps(update)))["docs"] == [{"id": 1}]
        adapter.backend.close()


def test_existing_filesystem_payloads_resolve_after_a_migration(postgres_url: str) -> None:
    old = FilesystemCAS("./state_blobs")
    docs = [{"id": "doc-1", "text": "x" * 10_000}]
    state = RAGState(backend=old, question="?", docs=docs)
    checkpoint = json.dumps(state.to_checkpoint_dict())
    new = PostgresCAS(
        dsn=postgres_url,
        backend_id="postgres:agentref",
        backend_aliases=[old.backend_id],
    )

    migrate_cas(old, new)
    old.close()

    assert RAGState.from_checkpoint_dict(json.loads(checkpoint), backend=new).docs == docs
    assert new.check(read_data=True).ok
    new.close()


def test_a_migration_alone_makes_old_references_resolve(postgres_url: str) -> None:
    with FilesystemCAS("./state_blobs") as old, PostgresCAS(dsn=postgres_url) as new:
        checkpoint = RAGState(backend=old, docs=[{"id": "doc-1"}]).to_checkpoint_dict()
        migrate_cas(old, new)

    with PostgresCAS(dsn=postgres_url) as later:
        assert RAGState.from_checkpoint_dict(checkpoint, backend=later).docs == [{"id": "doc-1"}]


def test_a_reference_to_another_backend_is_not_followed(postgres_url: str) -> None:
    state = RAGState(backend=InMemoryCAS(), docs=[{"id": 1}])
    with (
        PostgresCAS(dsn=postgres_url, backend_id="postgres:agentref") as store,
        pytest.raises(UnresolvedReferenceError, match="backend_aliases"),
    ):
        state.ref("docs").resolve(store)


def test_content_has_times(postgres_url: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    with PostgresCAS(
        dsn=postgres_url, default_ttl_seconds=3600, update_last_accessed=True
    ) as store:
        ref = RAGState(backend=store, docs=[{"id": 1}]).ref("docs")
        (made,) = store.contents()
        ref.resolve(store)
        (read,) = store.contents()

        assert made.hash == ref.hash
        assert before <= made.created_at == made.last_accessed_at <= read.last_accessed_at
        assert read.last_accessed_at > made.last_accessed_at
        assert made.expires_at is not None
        assert made.expires_at - made.created_at == pytest.approx(
            timedelta(seconds=3600), abs=timedelta(seconds=5)
        )


def test_content_without_a_time_is_kept_for_ever(postgres_url: str) -> None:
    with PostgresCAS(dsn=postgres_url) as store:
        RAGState(backend=store, docs=[{"id": 1}]).ref("docs")

        assert [one.expires_at for one in store.contents()] == [None]
        assert store.prune_expired(now=1 << 62).payloads == 0


def test_expired_content_is_removed_explicitly_and_not_before(postgres_url: str) -> None:
    with PostgresCAS(dsn=postgres_url, default_ttl_seconds=60, update_last_accessed=True) as store:
        ref = RAGState(backend=store, docs=[{"id": 1, "text": "x" * 3000}]).ref("docs")
        (made,) = store.contents()
        assert made.expires_at is not None
        after = microseconds(made.expires_at) + 1
        assert store.prune_expired().hashes == ()
        assert ref.resolve(store) == [{"id": 1, "text": "x" * 3000}]
        assert store._ask("SELECT count(*) FROM {s}.accesses") == [(1,)]

        done = store.prune_expired(now=after)
        assert (done.payloads, done.hashes) == (1, (ref.hash,)) and done.freed_bytes > 0
        assert store.prune_expired(now=after).payloads == 0
        assert list(store.contents()) == []
        assert store._ask("SELECT count(*) FROM {s}.accesses") == [(0,)]
        with pytest.raises(MissingContent):
            ref.resolve(store)


def test_a_put_over_expired_content_makes_it_live_again(postgres_url: str) -> None:
    with PostgresCAS(dsn=postgres_url, default_ttl_seconds=0.001) as store:
        ref = RAGState(backend=store, docs=[{"id": 1}]).ref("docs")
    with PostgresCAS(dsn=postgres_url, default_ttl_seconds=3600) as store:
        again = RAGState(backend=store, docs=[{"id": 1}]).ref("docs")

        assert again.hash == ref.hash
        assert store.prune_expired().payloads == 0
        assert ref.resolve(store) == [{"id": 1}]


def test_many_expire_and_the_rest_stays(postgres_url: str) -> None:
    with PostgresCAS(dsn=postgres_url, default_ttl_seconds=3600) as store:
        kept = []
        for number in range(5):
            state = RAGState(backend=store, docs=[{"id": number}])
            kept.append(state.ref("docs"))
        with using(Runtime(store, default_ttl_seconds=0.001)):
            short = [RAGState(docs=[{"id": -number}]).ref("docs") for number in range(1, 4)]
        time.sleep(0.01)  # Longer than the last of them lives.

        done = store.prune_expired(limit=10)
        assert done.payloads == 3
        assert sorted(done.hashes) == sorted(ref.hash for ref in short)
        assert {one.hash for one in store.contents()} == {ref.hash for ref in kept}
        assert all(isinstance(ref, ContentRef) and ref.resolve(store) for ref in kept)
