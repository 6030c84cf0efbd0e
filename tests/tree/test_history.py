"""Whatever the history of edits, a value has the root that it has without one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ropewalk.errors import NotStorable
from ropewalk.tree import TreeWriter
from tests.strategies import same
from tests.tree.edits import Editor, paths_of, slots
from tests.tree.support import Objects, mutable_objects, root_of, small_nodes

_SEEDS = st.integers(0, 2**32)
_FATES = st.sampled_from(["accepted"] * 7 + ["lost"] * 2 + ["stored but not accepted"])
_TIMES = st.integers(1, 3)
_IN_CONTAINERS = [Editor.edit_list, Editor.edit_dict, Editor.edit_set, Editor.edit_deque]
_IN_LEAVES = [Editor.edit_text, Editor.edit_bytes_in_place, Editor.edit_field]
_OF_PARTS = [Editor.replace, Editor.convert, Editor.convert_large, Editor.share]
_EVERYWHERE = [*_IN_CONTAINERS, *_IN_LEAVES, *_OF_PARTS]


class Unstorable:
    pass


class Edited(RuleBasedStateMachine):
    """One long-lived writer beside a plain Python value that is edited in place."""

    scale = 64
    most = 400

    def __init__(self) -> None:
        super().__init__()
        self.writer = TreeWriter()
        self.objects = Objects()
        self.value: Any = None

    @initialize(seed=_SEEDS)
    def start(self, seed: int) -> None:
        self.value = Editor(seed, self.scale).start()
        self._write("accepted")

    @rule(seed=_SEEDS, edit=st.sampled_from(_IN_CONTAINERS), times=_TIMES, fate=_FATES)
    def change_containers(self, seed: int, edit: Any, times: int, fate: str) -> None:
        self._change(seed, [edit] * times, fate)

    @rule(seed=_SEEDS, edit=st.sampled_from(_IN_LEAVES), times=_TIMES, fate=_FATES)
    def change_leaves(self, seed: int, edit: Any, times: int, fate: str) -> None:
        self._change(seed, [edit] * times, fate)

    @rule(seed=_SEEDS, edit=st.sampled_from(_OF_PARTS), times=_TIMES, fate=_FATES)
    def change_parts(self, seed: int, edit: Any, times: int, fate: str) -> None:
        self._change(seed, [edit] * times, fate)

    @rule(seed=_SEEDS, edits=st.lists(st.sampled_from(_EVERYWHERE), max_size=6), fate=_FATES)
    def change_a_lot(self, seed: int, edits: list[Any], fate: str) -> None:
        self._change(seed, edits, fate)

    def _change(self, seed: int, edits: list[Any], fate: str) -> None:
        editor = Editor(seed, self.scale)
        for edit in edits:
            edit(editor, self.value)
        editor.shrink(self.value, self.most)
        self._write(fate)

    @rule()
    def write_again(self) -> None:
        self._write("accepted")
        written = self.writer.write(self.value)

        assert written.objects == []
        assert written.needs == [written.root]

    @precondition(lambda self: self.writer.root is not None)
    @rule()
    def forget(self) -> None:
        self.writer.forget()

    @rule(seed=_SEEDS)
    def refuse(self, seed: int) -> None:
        found = slots(self.value)
        slot = found[seed % len(found)]
        kept, wrong = slot.part, Unstorable()
        slot.put(wrong)
        with pytest.raises(NotStorable) as caught:
            self.writer.write(self.value)

        assert caught.value.path in paths_of(self.value, wrong)
        slot.put(kept)

    def _write(self, fate: str) -> None:
        written = self.writer.write(self.value)
        assert written.root == root_of(self.value)
        if fate == "lost":
            return
        self.objects.add(written)
        if fate == "accepted":
            self.writer.accept(written)
        loaded = self.objects.load(written.root)
        assert same(loaded, self.value)
        held = mutable_objects(loaded)
        assert len({id(one) for one in held}) == len(held)


class EditedInSmallNodes(Edited):
    """The same with nodes so small that every value is a tall tree."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes = small_nodes()
        self._sizes.__enter__()

    def teardown(self) -> None:
        self._sizes.__exit__(None, None, None)


class EditedInRealNodes(Edited):
    scale = 2048
    most = 1000


TestEditedInSmallNodes = EditedInSmallNodes.TestCase
TestEditedInRealNodes = EditedInRealNodes.TestCase
TestEditedInRealNodes.settings = settings(max_examples=settings().max_examples // 20)
