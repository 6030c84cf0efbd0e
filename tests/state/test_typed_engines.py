"""A typed state is the same on every store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropewalk import (
    AgentState,
    CachedStore,
    Externalized,
    FileStore,
    Inline,
    MemoryStore,
    SqliteStore,
    Store,
)
from ropewalk.errors import MissingContent
from ropewalk.state import Runtime, prune_expired, release
from ropewalk.store import KeyValueStore
from tests.store.key_values import DictKV

ENGINES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda where: MemoryStore(),
    "files": FileStore,
    "sqlite": SqliteStore,
    "cached": lambda where: CachedStore(SqliteStore(where)),
    "key-value": lambda where: KeyValueStore(DictKV()),
}


class Docs(AgentState):
    step: Inline[int]
    docs: Externalized[list[Any]]


@pytest.mark.parametrize("engine", ENGINES)
def test_content_is_kept_changed_let_go_and_collected(engine: str, tmp_path: Path) -> None:
    with ENGINES[engine](tmp_path / "store") as store:
        runtime = Runtime(store, default_ttl_seconds=1000)
        state = Docs(runtime=runtime, step=0, docs=[{"id": n} for n in range(2000)])
        first = json.loads(json.dumps(state.to_checkpoint_dict()))
        state.docs[1000]["id"] = "changed"
        second = json.loads(json.dumps(state.to_checkpoint_dict()))
        old = Docs.from_checkpoint_dict(first, runtime=runtime)

        assert old.docs[1000] == {"id": 1000}
        assert Docs.from_checkpoint_dict(second, runtime=runtime).docs[1000] == {"id": "changed"}
        assert release(old.ref("docs"), store)
        store.gc(recent=1)
        with pytest.raises(MissingContent):
            Docs.from_checkpoint_dict(first, runtime=runtime).hydrate("docs")
        assert Docs.from_checkpoint_dict(second, runtime=runtime).docs[1000] == {"id": "changed"}
        assert len(prune_expired(store, 1 << 62)) == 1
        assert store.check(read_data=True).ok
