"""A typed state: its fields, what it holds, and its checkpoints."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import threading
from typing import Annotated, Any, ClassVar, assert_type

import pytest

from ropewalk import AgentState, ContentRef, Externalized, Inline, InlineSizeExceeded, MemoryStore
from ropewalk.errors import (
    FieldNotSet,
    InvalidInput,
    NotStorable,
    RopewalkError,
    UnknownField,
)
from ropewalk.state import Runtime, StateField, append_items, create_runtime, default
from ropewalk.tree import Object, ObjectId


class RAGState(AgentState):
    question: Inline[str]
    docs: Externalized[list[dict[str, Any]]]
    citations: Inline[list[str]]


class Early(AgentState):
    docs: Externalized[list[DefinedLater]]


class DefinedLater: ...


class CountingStore(MemoryStore):
    """A store that counts the objects that are read from it, and the commits."""

    reads = 0
    commits = 0

    def read(self, ids: Any) -> list[Object]:
        wanted: list[ObjectId] = list(ids)
        self.reads += len(wanted)
        return super().read(wanted)

    def commit(self, *arguments: Any, **keywords: Any) -> Any:
        self.commits += 1
        return super().commit(*arguments, **keywords)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def state(store: CountingStore) -> RAGState:
    return RAGState(backend=store, question="why?", docs=[{"id": 1}], citations=["a"])


def again(state: RAGState) -> RAGState:
    """The state as a framework gives it back: through JSON."""
    checkpoint = json.loads(json.dumps(state.to_checkpoint_dict()))
    return RAGState.from_checkpoint_dict(checkpoint, runtime=state.runtime)


# Declarations.


def test_fields_are_those_of_the_annotations_in_their_order() -> None:
    fields = RAGState.fields()

    assert list(fields) == ["question", "docs", "citations"]
    assert list(RAGState.inline_fields()) == ["question", "citations"]
    assert list(RAGState.externalized_fields()) == ["docs"]
    assert fields["docs"].type == list[dict[str, Any]]


def test_an_annotation_may_name_a_local_type() -> None:
    class Document: ...

    class Local(AgentState):
        docs: Externalized[list[Document]]

    assert Local.fields()["docs"].type == list[Document]


def test_an_annotation_may_name_what_is_defined_later() -> None:
    assert Early.fields()["docs"].type == list[DefinedLater]


def test_an_annotation_that_leads_nowhere_is_an_error_that_names_the_field() -> None:
    class Broken(AgentState):
        question: Inline[str]
        docs: Externalized[list[Nowhere]]  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InvalidInput, match=r"'docs' of .*Broken.*'Nowhere' is not defined"):
        Broken.fields()
    with pytest.raises(InvalidInput, match="docs"):
        Broken(question="?")


def test_annotations_need_not_be_texts() -> None:
    made = type("Made", (AgentState,), {"__annotations__": {"x": Inline[int]}})

    assert issubclass(made, AgentState) and made.fields()["x"].kind == "inline"


def test_a_subclass_has_the_fields_of_its_bases_first() -> None:
    class Derived(RAGState):
        answer: Inline[str]
        question: Externalized[str]

    assert list(Derived.fields()) == ["question", "docs", "citations", "answer"]
    assert Derived.fields()["question"].is_externalized
    assert not RAGState.fields()["question"].is_externalized


def test_fields_of_several_bases_are_joined() -> None:
    class One(AgentState):
        a: Inline[int]

    class Two(AgentState):
        b: Inline[int]

    class Both(One, Two):
        c: Inline[int]

    assert set(Both.fields()) == {"a", "b", "c"}


def test_class_variables_and_private_names_are_no_fields() -> None:
    class Odd(AgentState):
        limit: ClassVar[int] = 3
        _cache: int
        x: Inline[int]

    state = Odd(x=1)
    state._cache = 5

    assert list(Odd.fields()) == ["x"]
    assert Odd.limit == 3 and state._cache == 5
    assert state.to_checkpoint_dict() == {"x": 1}


def test_a_property_of_a_users_class_works_as_ever() -> None:
    class Counted(RAGState):
        @property
        def first(self) -> dict[str, Any]:
            return self.docs[0]

        @first.setter
        def first(self, doc: dict[str, Any]) -> None:
            self.docs[0] = doc

    state = Counted(backend=MemoryStore(), docs=[{"id": 1}])
    state.first = {"id": 2}

    assert state.first == {"id": 2}
    assert set(state.to_checkpoint_dict()) == {"docs"}


def test_annotated_may_stand_around_a_marker_and_choose_a_reducer() -> None:
    class Reduced(AgentState):
        docs: Annotated[Externalized[list[int]], "a note", append_items]

    assert Reduced.fields()["docs"].reducer is append_items
    assert Reduced.fields()["docs"].type == list[int]


def test_a_field_that_is_not_marked_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(InvalidInput, match=r"'x' of .* write Inline\[int\]"):

        class Unmarked(AgentState):
            x: int


def test_a_marker_inside_a_union_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidInput, match="the marker goes around it all"):

        class Wrong(AgentState):
            x: Inline[int] | None


@pytest.mark.parametrize("name", ["fields", "save", "runtime", "backend", "assign", "ahydrate"])
def test_a_field_that_would_hide_a_method_or_keyword_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        type("Hiding", (AgentState,), {"__annotations__": {name: Inline[int]}})


def test_a_field_that_would_hide_a_method_of_a_users_base_is_refused() -> None:
    class Base(AgentState):
        def total(self) -> int:
            return 1

    with pytest.raises(InvalidInput, match="total"):
        type("Hiding", (Base,), {"__annotations__": {"total": Inline[int]}})


def test_a_method_that_would_hide_a_field_is_refused() -> None:
    with pytest.raises(InvalidInput, match="docs"):
        type("Hiding", (RAGState,), {"docs": lambda self: 1})


def test_a_class_default_is_kept_and_copied_for_each_state() -> None:
    class Defaults(AgentState):
        step: Inline[int] = 5  # type: ignore[assignment]
        notes: Inline[list[str]] = default([])
        docs: Externalized[list[int]] = default([1])

    one, two = Defaults(), Defaults(step=6)
    one.notes.append("mine")
    one.docs.append(2)

    assert (one.step, two.step) == (5, 6)
    assert (one.notes, two.notes, Defaults().notes) == (["mine"], [], [])
    assert (one.docs, two.docs, Defaults().docs) == ([1, 2], [1], [1])


def test_a_checkpoint_from_before_a_field_gets_its_default() -> None:
    class Grown(AgentState):
        old: Inline[int]
        new: Inline[int] = default(7)

    assert Grown.from_checkpoint_dict({"old": 1}).new == 7


def test_a_field_of_the_class_itself_says_what_it_is() -> None:
    field = RAGState.docs

    assert_type(field, StateField)
    assert field.name == "docs"


def test_type_checkers_see_what_the_markers_hold(state: RAGState) -> None:
    assert_type(state.question, str)
    assert_type(state.docs, list[dict[str, Any]])
    state.docs = [{"id": 2}]
    state.docs = state.ref("docs")
    state.question = 3  # type: ignore[assignment]
    state.docs = ["text"]  # type: ignore[list-item]

    assert state.to_hydrated_dict()["docs"] == ["text"]


# Reading and assigning.


def test_a_name_that_is_not_declared_is_an_error_everywhere(state: RAGState) -> None:
    known = "question, docs, citations"

    with pytest.raises(UnknownField, match=f"'dosc'.*{known}"):
        RAGState(dosc=[])
    with pytest.raises(UnknownField, match=f"'dosc'.*{known}"):
        state.dosc = []  # type: ignore[attr-defined]
    with pytest.raises(UnknownField, match=f"'dosc'.*{known}"):
        state["dosc"] = []
    with pytest.raises(UnknownField, match=f"'dosc'.*{known}"):
        state["dosc"]
    with pytest.raises(UnknownField, match=f"'dosc'.*{known}"):
        RAGState.from_checkpoint_dict({"dosc": 1})
    with pytest.raises(UnknownField, match=f"'dosc'.*{known}"):
        state.dosc  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(state, "dosc")


def test_a_state_takes_no_positional_arguments() -> None:
    with pytest.raises(TypeError):
        RAGState({"question": "?"})  # type: ignore[call-arg, arg-type]


def test_a_field_without_a_value_is_an_attribute_error_and_a_key_error() -> None:
    state = RAGState()

    assert not hasattr(state, "docs")
    with pytest.raises(FieldNotSet, match="docs"):
        state.docs  # noqa: B018
    with pytest.raises(KeyError):
        state["question"]
    with pytest.raises(FieldNotSet):
        del state.citations


@pytest.mark.parametrize("name", ["docs", "dosc"], ids=["not set", "not declared"])
def test_what_has_no_value_is_asked_for_in_every_usual_way(name: str) -> None:
    state = RAGState(question="?")

    for error in (KeyError, AttributeError, LookupError, RopewalkError):
        with pytest.raises(error, match=name):
            state[name]
    for error in (AttributeError, KeyError if name == "docs" else AttributeError):
        with pytest.raises(error, match=name):
            getattr(state, name)
    assert not hasattr(state, name) and name not in state
    assert getattr(state, name, "default") == state.get(name, "default") == "default"
    assert state.get(name) is None


def test_a_state_becomes_a_dict_of_its_values(state: RAGState) -> None:
    checkpoint = state.to_checkpoint_dict()
    loaded = RAGState.from_checkpoint_dict(checkpoint, runtime=state.runtime)
    del loaded.citations
    expected = {"question": state.question, "docs": state.docs}

    assert dict(loaded) == {**loaded} == expected
    assert {**loaded, "question": "!"}["docs"] == state.docs
    assert list(loaded.keys()) == ["question", "docs"]
    assert loaded.get("docs") is loaded.docs and loaded.get("citations", 0) == 0
    assert dict(RAGState()) == {}


def test_assigned_names_are_what_a_state_contains(state: RAGState) -> None:
    del state.citations

    assert "docs" in state and "citations" not in state and "dosc" not in state
    assert list(state) == ["question", "docs"]
    assert len(state) == 2
    assert set(state.to_checkpoint_dict()) == {"question", "docs"}
    assert state.to_hydrated_dict() == {"question": "why?", "docs": [{"id": 1}]}
    assert bool(RAGState())


def test_reading_and_assigning_work_by_item_too(state: RAGState) -> None:
    state["docs"] = [{"id": 2}]

    assert state["docs"] is state.docs
    assert state["docs"] == [{"id": 2}]


def test_a_value_is_loaded_once_and_only_when_it_is_read(store: CountingStore) -> None:
    state = again(RAGState(backend=store, docs=[{"id": n} for n in range(1000)]))
    store.reads = 0

    assert repr(state) and len(state) == 1 and "docs" in state and list(state) == ["docs"]
    assert state == again(state)
    assert store.reads == 0
    assert len(state.docs) == 1000 and store.reads > 0
    store.reads = 0
    assert state.docs is state.docs and store.reads == 0


def test_two_states_never_share_a_value(state: RAGState) -> None:
    other = again(state)
    other.docs.append({"id": 2})
    other.citations.append("b")

    assert state.docs == [{"id": 1}] and state.citations == ["a"]


def test_what_is_assigned_is_copied(store: CountingStore) -> None:
    docs: list[dict[str, Any]] = [{"id": 1}]
    citations = ["a"]
    state = RAGState(backend=store, docs=docs, citations=citations)
    docs.append({"id": 2})
    citations.append("b")

    assert state.docs == [{"id": 1}] and state.citations == ["a"]


def test_the_states_own_object_stays_the_same_when_it_is_assigned_again(state: RAGState) -> None:
    docs, citations = state.docs, state.citations
    docs.append({"id": 2})
    citations.append("b")
    state.docs, state.citations = docs, citations

    assert state.docs is docs and state.citations is citations
    assert again(state).docs == [{"id": 1}, {"id": 2}]
    assert again(state).citations == ["a", "b"]


def test_several_fields_are_assigned_in_one_commit_or_not_at_all(store: CountingStore) -> None:
    class Two(AgentState):
        a: Externalized[list[int]]
        b: Externalized[list[int]]
        c: Inline[str]

    state = Two(backend=store)
    state.assign(a=[1], b=[2], c="x")
    commits = store.commits
    with pytest.raises(NotStorable, match=r"state\.b\[0\]"):
        state.assign(a=[3], c="y", b=[object()])

    assert commits == 1 and store.commits == 1
    assert state.to_hydrated_dict() == {"a": [1], "b": [2], "c": "x"}


def test_a_value_that_cannot_be_stored_is_refused_with_its_path(state: RAGState) -> None:
    with pytest.raises(NotStorable, match=r'state\.docs\[1\]\["fn"\]'):
        state.docs = [{}, {"fn": print}]
    with pytest.raises(NotStorable, match=r"state\.question"):
        state.question = threading.Lock()  # type: ignore[assignment]

    assert state.docs == [{"id": 1}] and state.question == "why?"


def test_many_threads_read_one_and_the_same_object(state: RAGState) -> None:
    fresh, barrier = again(state), threading.Barrier(8)
    seen: list[int] = []

    def read() -> None:
        barrier.wait()
        seen.append(id(fresh.docs))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(seen) == 8 and len(set(seen)) == 1


# Changes in place.


def test_save_stores_what_was_changed_in_place(state: RAGState) -> None:
    state.docs[0]["id"] = 5

    assert state.save() == ["docs"]
    assert state.save() == []
    assert again(state).docs == [{"id": 5}]


def test_a_checkpoint_has_every_change_that_can_be_seen(state: RAGState) -> None:
    state.docs[0]["deep"] = {"er": [1]}
    first = again(state)
    state.docs[0]["deep"]["er"].append(2)

    assert first.docs == [{"id": 1, "deep": {"er": [1]}}]
    assert again(state).docs == [{"id": 1, "deep": {"er": [1, 2]}}]


def test_a_change_to_an_equal_value_of_another_type_is_a_change(state: RAGState) -> None:
    state.docs[0]["id"] = True
    assert state.save() == ["docs"]
    state.docs[0]["id"] = 1.0
    assert state.save() == ["docs"]

    assert type(again(state).docs[0]["id"]) is float


def test_what_was_not_changed_is_not_stored_again(store: CountingStore, state: RAGState) -> None:
    fresh = again(state)
    assert fresh.docs == [{"id": 1}]
    before = store.commits
    fresh.to_checkpoint_dict()

    assert store.commits == before


def test_a_change_that_cannot_be_stored_is_an_error_of_save(state: RAGState) -> None:
    state.docs.append({"fn": print})

    with pytest.raises(NotStorable, match=r'state\.docs\[1\]\["fn"\]'):
        state.to_checkpoint_dict()
    state.docs.pop()
    assert again(state).docs == [{"id": 1}]


def test_a_saved_change_costs_what_changed() -> None:
    class Big(AgentState):
        docs: Externalized[list[dict[str, Any]]]

    store = MemoryStore()
    state = Big(backend=store, docs=[{"id": n, "text": f"{n}" * 20} for n in range(20_000)])
    checkpoint = state.to_checkpoint_dict()
    whole = _bytes(store)
    for kept in (state, Big.from_checkpoint_dict(checkpoint, backend=store)):
        before = _bytes(store)
        kept.docs[10_000]["text"] = "changed"
        kept.save()

        assert _bytes(store) - before < whole / 50


def _bytes(store: MemoryStore) -> int:
    return sum(one.length for one in store.scan())


def test_a_state_goes_on_after_its_old_content_was_collected(store: CountingStore) -> None:
    from ropewalk.state import release

    state = RAGState(backend=store, docs=[{"id": n} for n in range(5000)])
    docs = state.docs
    release(state.ref("docs"), store)
    store.gc(recent=1)
    docs.append({"id": "new"})
    state.save()

    assert again(state).docs == docs


def test_unload_saves_and_lets_go(store: CountingStore, state: RAGState) -> None:
    docs = state.docs
    docs.append({"id": 2})
    state.unload()

    assert "loaded" not in repr(state)
    assert state.docs == docs and state.docs is not docs


# Inline values.


def test_an_inline_value_over_the_threshold_is_refused_with_its_size() -> None:
    runtime = Runtime(MemoryStore(), inline_threshold_bytes=100)
    state = RAGState(runtime=runtime, question="x" * 90)

    with pytest.raises(InlineSizeExceeded) as caught:
        state.question = "x" * 200
    assert (caught.value.field, caught.value.limit) == ("question", 100)
    assert 200 <= caught.value.size <= 210
    assert state.question == "x" * 90


def test_the_threshold_is_a_limit_that_may_be_reached() -> None:
    runtime = Runtime(MemoryStore(), inline_threshold_bytes=102)
    state = RAGState(runtime=runtime, question="x" * 100)  # two bytes say that it is text

    with pytest.raises(InlineSizeExceeded):
        state.question = "x" * 101


def test_a_larger_threshold_lets_larger_values_pass() -> None:
    large = "x" * 200_000
    runtime = Runtime(MemoryStore(), inline_threshold_bytes=1_000_000)
    state = RAGState(runtime=runtime, question=large)

    assert again(state).question == large
    with pytest.raises(InlineSizeExceeded):
        RAGState.from_checkpoint_dict(state.to_checkpoint_dict(), backend=MemoryStore())


def test_an_inline_value_that_grew_in_place_is_refused_by_the_checkpoint(state: RAGState) -> None:
    state.citations.append("x" * 70_000)

    with pytest.raises(InlineSizeExceeded, match="citations"):
        state.to_checkpoint_dict()


def test_a_checkpoint_shares_nothing_with_the_state(state: RAGState) -> None:
    checkpoint = state.to_checkpoint_dict()
    state.citations.append("b")
    back = RAGState.from_checkpoint_dict(checkpoint, runtime=state.runtime)
    back.citations.append("c")

    assert checkpoint["citations"] == ["a"]


# As a value.


def test_states_are_equal_by_content(store: CountingStore, state: RAGState) -> None:
    same, other = again(state), again(state)
    other.docs.append({"id": 2})

    assert state == same
    assert state != other and other != same  # also before it is saved
    assert state != state.to_checkpoint_dict()
    assert again(other) == other
    with pytest.raises(TypeError):
        hash(state)


def test_states_on_different_stores_are_equal_by_content(state: RAGState) -> None:
    other = RAGState(backend=MemoryStore(), **state.to_hydrated_dict())

    assert state == other
    other.citations = ("a",)  # type: ignore[assignment]
    assert state != other


def test_repr_is_short_and_loads_nothing(store: CountingStore) -> None:
    state = again(RAGState(backend=store, question="x" * 1000, docs=[{"id": 1}] * 1000))
    store.reads = 0
    shown = repr(state)

    assert store.reads == 0
    assert shown.startswith("RAGState(question='xxx") and "docs=<list of" in shown
    assert len(shown) < 200


def test_a_copy_is_a_state_of_its_own(state: RAGState) -> None:
    state.docs.append({"id": 2})
    for made in (copy.copy(state), copy.deepcopy(state)):
        assert made == state
        made.docs.append({"id": 3})
        made.citations.append("c")

    assert len(state.docs) == 2 and state.citations == ["a"]


def test_a_state_cannot_be_pickled_and_says_what_to_do(state: RAGState) -> None:
    with pytest.raises(TypeError, match="to_checkpoint_dict"):
        pickle.dumps(state)


# Checkpoints.


def test_a_checkpoint_goes_through_json_and_back(state: RAGState) -> None:
    checkpoint = state.to_checkpoint_dict()

    assert list(checkpoint) == ["question", "docs", "citations"]
    assert list(checkpoint["docs"]) == ["ropewalk_ref"]
    assert again(state) == state


@pytest.mark.parametrize(
    "place",
    [[{"id": 1}], "text", None, {}, {"ropewalk_ref": None}, {"ropewalk_ref": {"hash": "x"}}],
    ids=repr,
)
def test_the_place_of_an_externalized_field_takes_nothing_but_a_reference(place: object) -> None:
    with pytest.raises(InvalidInput, match="docs"):
        RAGState.from_checkpoint_dict({"docs": place})


def test_a_checkpoint_must_be_a_mapping() -> None:
    with pytest.raises(InvalidInput, match="dict"):
        RAGState.from_checkpoint_dict([("question", "?")])  # type: ignore[arg-type]


def test_a_hydrated_dict_is_the_callers_own(state: RAGState) -> None:
    state.docs.append({"id": 2})
    taken = state.to_hydrated_dict()
    taken["docs"].append({"id": 3})
    taken["citations"].append("b")

    assert state.to_hydrated_dict()["docs"] == [{"id": 1}, {"id": 2}]
    assert state.citations == ["a"]


# Runtimes.


def test_a_falsy_store_is_not_replaced() -> None:
    class Empty(MemoryStore):
        def __len__(self) -> int:
            return 0

    store = Empty()

    assert RAGState(backend=store).runtime.backend is store
    assert create_runtime(backend=store).backend is store


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Store"):
        RAGState(backend={"a": 1})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="runtime"):
        RAGState(runtime=MemoryStore())  # type: ignore[arg-type]


# The asynchronous face.


def test_the_twins_do_what_they_are_twins_of(store: CountingStore) -> None:
    async def run() -> dict[str, Any]:
        state = RAGState(backend=store)
        await state.aassign(question="why?", docs=[{"id": 1}])
        (await state.ahydrate("docs")).append({"id": 2})
        assert await state.asave() == ["docs"]
        assert await (await state.aref("docs")).aresolve(store) == [{"id": 1}, {"id": 2}]
        checkpoint = await state.ato_checkpoint_dict()
        await state.aunload()
        return await RAGState.from_checkpoint_dict(checkpoint, backend=store).ato_hydrated_dict()

    assert asyncio.run(run()) == {"question": "why?", "docs": [{"id": 1}, {"id": 2}]}


def test_a_reference_is_of_an_externalized_field_that_is_set(state: RAGState) -> None:
    assert isinstance(state.ref("docs"), ContentRef)
    with pytest.raises(InvalidInput, match="inline"):
        state.ref("question")
    with pytest.raises(FieldNotSet):
        RAGState().ref("docs")


@pytest.mark.parametrize("hint", [Inline[Externalized[int]], Externalized[list[Inline[int]]]])
def test_a_marker_inside_another_one_is_refused(hint: Any) -> None:
    with pytest.raises(InvalidInput, match="marker inside another"):
        type("Nested", (AgentState,), {"__annotations__": {"docs": hint}})


def test_a_state_can_be_saved_while_another_thread_changes_it() -> None:
    state = RAGState(backend=MemoryStore(), docs=[{"id": n, "at": (n,)} for n in range(300)])
    docs, stop = state.docs, threading.Event()

    def change() -> None:
        while not stop.is_set():
            docs.append({"id": "more", "at": (0,)})
            docs[len(docs) // 2]["id"] = (len(docs), "changed")
            del docs[250:]

    thread = threading.Thread(target=change)
    thread.start()
    try:
        taken = [state.to_checkpoint_dict() for _ in range(60)]
    finally:
        stop.set()
        thread.join()
    for checkpoint in taken:
        assert RAGState.from_checkpoint_dict(checkpoint, runtime=state.runtime).docs

    assert again(state).docs == docs
