"""What every adapter does: schema, reducers, updates and views that load when they are read."""

from __future__ import annotations

import copy
import inspect
import json
import sys
from types import ModuleType
from typing import Annotated, Any, get_type_hints

import pytest

from ropewalk import (
    AgentState,
    Externalized,
    FileStore,
    Framework,
    Inline,
    InlineSizeExceeded,
    MemoryStore,
    auto_adapt,
)
from ropewalk.adapters import Hydrated, StateAdapter, Update
from ropewalk.errors import InvalidInput, NotStorable, UnknownField
from ropewalk.history import History
from ropewalk.state import Runtime, append_items
from ropewalk.store.reserved import CONTENT_SPACE
from ropewalk.tree import Object


class RAGState(AgentState):
    question: Inline[str]
    docs: Externalized[list[dict[str, Any]]]
    notes: Annotated[Externalized[list[str]], append_items]
    log: Annotated[Inline[list[str]], append_items]


class CountingStore(MemoryStore):
    """A store that counts the objects that are read from it, and the commits."""

    reads = 0
    commits = 0

    def read(self, ids: Any) -> list[Object]:
        wanted = list(ids)
        self.reads += len(wanted)
        return super().read(wanted)

    def commit(self, *arguments: Any, **keywords: Any) -> Any:
        self.commits += 1
        return super().commit(*arguments, **keywords)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def adapter(store: CountingStore) -> StateAdapter:
    return StateAdapter(RAGState, backend=store)


def test_the_schema_is_a_typed_dict_with_reducers_where_there_are_any(
    adapter: StateAdapter,
) -> None:
    hints = get_type_hints(adapter.schema(), include_extras=True)

    assert hints["question"] is str and hints["docs"] is Any
    for name in ("notes", "log"):
        (reducer,) = hints[name].__metadata__
        assert len(inspect.signature(reducer).parameters) == 2
    assert adapter.schema().__name__ == "RAGState"
    assert vars(adapter.schema())["__required_keys__"] == frozenset()


def test_an_update_has_references_and_goes_through_json(adapter: StateAdapter) -> None:
    update = adapter.externalize({"question": "?", "docs": [{"id": 1}]})
    told = json.loads(json.dumps(update))

    assert isinstance(update, Update) and list(update) == ["question", "docs"]
    assert told == update
    assert adapter.hydrate(told)["docs"] == [{"id": 1}]


def test_an_update_is_one_commit_or_nothing(adapter: StateAdapter, store: CountingStore) -> None:
    adapter.externalize({"docs": [{}], "notes": ["a"], "question": "?"})
    assert store.commits == 1

    for wrong in ({"notes": [print]}, {"question": "x" * 100_000}, {"dosc": 1}):
        with pytest.raises((NotStorable, InlineSizeExceeded, UnknownField)):
            adapter.externalize({"docs": [{"new": 1}], **wrong})
    assert store.commits == 1


def test_an_unknown_name_in_an_update_is_an_error(adapter: StateAdapter) -> None:
    with pytest.raises(UnknownField, match=r"'dosc'.*question, docs"):
        adapter.externalize({"dosc": []})


def test_an_update_shares_nothing_with_what_it_was_made_from(adapter: StateAdapter) -> None:
    log = ["a"]
    update = adapter.externalize({"log": log})
    log.append("b")

    assert update == {"log": ["a"]}


def test_a_view_loads_a_field_when_it_is_read_and_once(
    adapter: StateAdapter, store: CountingStore
) -> None:
    held = adapter.externalize(
        {"question": "?", "docs": [{"id": n} for n in range(3000)], "notes": ["x"] * 3000}
    )
    store.reads = 0
    view = adapter.hydrate(held)

    assert view["question"] == "?" and "docs" in view and len(view) == 3
    assert list(view) == ["question", "docs", "notes"] and "docs" in repr(view)
    assert view.get("log") is None
    assert store.reads == 0
    assert len(view["docs"]) == 3000
    first = store.reads
    assert view["docs"] is view["docs"] and store.reads == first


def test_a_view_cannot_be_written_to(adapter: StateAdapter) -> None:
    view = adapter.hydrate({"question": "?"})

    with pytest.raises(TypeError):
        view["question"] = "!"  # type: ignore[index]


def test_what_a_view_loaded_is_its_own(adapter: StateAdapter) -> None:
    held = adapter.externalize({"docs": [{"id": 1}]})
    adapter.hydrate(held)["docs"].append("LEAK")

    assert adapter.hydrate(held)["docs"] == [{"id": 1}]


def test_values_that_are_no_references_pass_through_a_view(adapter: StateAdapter) -> None:
    raw = {"docs": [{"id": 1}], "question": "?", "of the framework": 5}
    view = adapter.hydrate(raw)

    assert dict(view) == raw
    assert view.ref("docs") is None


def test_an_unset_field_is_absent_and_no_empty_value(adapter: StateAdapter) -> None:
    view = adapter.hydrate({"question": "?"})

    assert "docs" not in view
    with pytest.raises(KeyError):
        view["docs"]


@pytest.mark.parametrize("how", ["in place", "new list"])
def test_an_update_since_a_view_stores_what_changed(adapter: StateAdapter, how: str) -> None:
    held = adapter.externalize({"docs": [{"id": n, "text": "x" * 50} for n in range(20_000)]})
    whole = _bytes(adapter)
    view = adapter.hydrate(held)
    docs = view["docs"]
    if how == "in place":
        docs.append({"id": "new"})
    else:
        docs = [*docs, {"id": "new"}]
    update = adapter.externalize({"docs": docs}, since=view)

    assert _bytes(adapter) - whole < whole / 50
    assert adapter.hydrate(update)["docs"][-1] == {"id": "new"}
    assert len(adapter.hydrate(held)["docs"]) == 20_000
    assert view.ref("docs") != adapter.hydrate(update).ref("docs")


def _bytes(adapter: StateAdapter) -> int:
    store = adapter.backend
    return sum(one.length for one in store.scan())


def test_references_of_a_checkpoint_are_renewed(store: CountingStore) -> None:
    short = StateAdapter(RAGState, runtime=Runtime(store, default_ttl_seconds=10))
    long = StateAdapter(RAGState, runtime=Runtime(store, default_ttl_seconds=1000))
    held = short.externalize({"docs": [{"id": 1}], "question": "?"})
    (before,) = History(store, CONTENT_SPACE).pins()
    long.renew(held)
    (after,) = History(store, CONTENT_SPACE).pins()

    assert before.expires_at is not None and after.expires_at is not None
    assert after.expires_at > before.expires_at + 900e6


def test_a_state_is_an_update_too(adapter: StateAdapter, store: CountingStore) -> None:
    state = RAGState(backend=store, question="?", docs=[{"id": 1}])
    state.docs.append({"id": 2})
    update = adapter.externalize(state)

    assert adapter.hydrate(update)["docs"] == [{"id": 1}, {"id": 2}]
    assert len(History(store, CONTENT_SPACE).pins()) == 2


def test_an_adapter_is_for_a_typed_state(store: CountingStore) -> None:
    for wrong in (dict, RAGState(backend=store), None):
        with pytest.raises(InvalidInput, match="AgentState"):
            StateAdapter(wrong, backend=store)  # type: ignore[arg-type]


def test_the_settings_of_an_adapter_are_checked_and_used(store: CountingStore) -> None:
    base = Runtime(store, inline_threshold_bytes=7)

    assert StateAdapter(RAGState, runtime=base).runtime is base
    assert StateAdapter(RAGState, runtime=base, inline_threshold_bytes=9).runtime == Runtime(
        store, 9
    )
    assert StateAdapter(RAGState, framework="crewai").framework is Framework.CREWAI
    with pytest.raises(InvalidInput):
        StateAdapter(RAGState, inline_threshold_bytes=0)
    with pytest.raises(InvalidInput):
        StateAdapter(RAGState, framework="django")


def test_auto_adapt_gives_the_adapter(store: CountingStore) -> None:
    adapter = auto_adapt(RAGState, "crewai", backend=store, inline_threshold_bytes=5)

    assert isinstance(adapter, StateAdapter)
    assert adapter.framework is Framework.CREWAI and adapter.backend is store
    with pytest.raises(InlineSizeExceeded):
        adapter.externalize({"question": "longer"})


def test_auto_adapt_takes_the_adapter_of_the_frameworks_own_module(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(StateAdapter):
        pass

    module = ModuleType("ropewalk.adapters.openai_agents")
    module.__spec__ = copy.copy(sys.modules["ropewalk.adapters"].__spec__)
    vars(module)["Adapter"] = Own
    monkeypatch.setitem(sys.modules, module.__name__, module)

    assert type(auto_adapt(RAGState, "openai-agents", backend=store)) is Own


def test_a_threads_views_read_one_object(adapter: StateAdapter) -> None:
    view = adapter.hydrate(adapter.externalize({"docs": [{"id": 1}]}))

    assert isinstance(view, Hydrated)
    assert view["docs"] is view["docs"]


def test_updates_of_a_store_in_files_are_read_by_another(tmp_path: Any) -> None:
    with FileStore(tmp_path / "blobs") as first:
        update = StateAdapter(RAGState, backend=first).externalize({"docs": [{"id": 1}]})
    with FileStore(tmp_path / "blobs") as second:
        view = StateAdapter(RAGState, backend=second).hydrate(json.loads(json.dumps(update)))
        assert view["docs"] == [{"id": 1}]
