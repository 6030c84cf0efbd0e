"""Three-way merge of values, over paths; cost follows the changes of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.codec import Codec, Path, default_codec
from holdfast.codec._codes import Code
from holdfast.errors import MergeConflict
from holdfast.tree._builder import Builder
from holdfast.tree._compare import differing, hunks
from holdfast.tree._container import (
    Container,
    Edited,
    edit_mapping,
    edit_sequence,
    finish,
    open_part,
    order_part,
    part_of,
)
from holdfast.tree._embed import Embedder, in_turn
from holdfast.tree._layout import Entry
from holdfast.tree._levels import Span, View
from holdfast.tree._load import Loader
from holdfast.tree._mergers import (
    ABSENT,
    CannotMerge,
    Merger,
    Mergers,
    PathConflict,
    Rules,
)
from holdfast.tree._objects import ObjectId, Reader
from holdfast.tree._runs import Hunk, Overlap, combine, single


def merge(
    base: ObjectId | None,
    ours: ObjectId,
    theirs: ObjectId,
    read: Reader,
    *,
    mergers: Mergers | None = None,
    codec: Codec | None = None,
) -> Edited:
    """One value with the changes of both sides since `base`.

    Where both changed the same place, the merger for its path, type or prefix decides
    (see `Rules`). Without one, dicts merge by key, lists by item, sets by member, and
    the rest raises MergeConflict with every such path. Key order is that of ours.
    """
    known = default_codec if codec is None else codec
    merging = _Merge(read, known, Rules(mergers or {}, known.encode))
    start = None if base is None else part_of(base, read)
    part = merging.parts((), start, part_of(ours, read), part_of(theirs, read))
    if merging.conflicts:
        raise MergeConflict(merging.conflicts)
    assert part is not None
    return finish(merging.builder, part, ours)


class _Merge:
    """One merge. A part that is None is not there."""

    def __init__(self, read: Reader, codec: Codec, rules: Rules) -> None:
        self.builder = Builder(read)
        self.conflicts: list[PathConflict] = []
        self._codec = codec
        self._rules = rules
        self._embedder = Embedder(codec, self.builder, {})
        self._loader = Loader(self.builder.read, codec)

    def parts(
        self, path: Path, base: bytes | None, ours: bytes | None, theirs: bytes | None
    ) -> bytes | None:
        """The part that both sides' changes make of a part."""
        if ours == theirs and (ours == base or not self._rules.run_on_equal(path)):
            return ours
        if base in (ours, theirs):
            return theirs if ours == base else ours
        merger = self._rules.at(path) or self._of_type(ours, theirs)
        if merger is not None:
            return self._call(merger, path, base, ours, theirs)
        left = None if ours is None else open_part(ours, self.builder.read)
        right = None if theirs is None else open_part(theirs, self.builder.read)
        if left is not None and right is not None and left.title == right.title:
            return self._containers(path, base, left, right, (ours, theirs))
        return self._settle(path, base, ours, theirs)

    def _of_type(self, ours: bytes | None, theirs: bytes | None) -> Merger | None:
        if not self._rules.by_type or ours is None or theirs is None:
            return None
        cls = type(self._loader.part(ours))
        return self._rules.of_type(cls) if type(self._loader.part(theirs)) is cls else None

    def _settle(
        self, path: Path, base: bytes | None, ours: bytes | None, theirs: bytes | None
    ) -> bytes | None:
        """Decide about a place that has no parts on both sides."""
        merger = self._rules.beneath(path)
        if merger is not None:
            return self._call(merger, path, base, ours, theirs)
        if ours != theirs:
            self._conflict(path, base, ours, theirs)
        return ours

    def _call(
        self,
        merger: Merger,
        path: Path,
        base: bytes | None,
        ours: bytes | None,
        theirs: bytes | None,
    ) -> bytes | None:
        if ours == theirs and not merger.on_equal:
            return ours
        try:
            merged = merger.function(self._load(base), self._load(ours), self._load(theirs))
        except CannotMerge as exc:
            self._conflict(path, base, ours, theirs, str(exc))
            return ours
        return None if merged is ABSENT else self._embedder.embed(merged, ours)

    def _load(self, part: bytes | None) -> Any:
        return ABSENT if part is None else self._loader.part(part)

    def _conflict(
        self,
        path: Path,
        base: bytes | None,
        ours: bytes | None,
        theirs: bytes | None,
        reason: str = "both sides changed it",
    ) -> None:
        values = self._load(base), self._load(ours), self._load(theirs)
        self.conflicts.append(PathConflict(path, *values, reason))

    def _containers(
        self,
        path: Path,
        base: bytes | None,
        ours: Container,
        theirs: Container,
        parts: tuple[bytes | None, bytes | None],
    ) -> bytes | None:
        before = None if base is None else open_part(base, self.builder.read)
        if before is None or before.title != ours.title:
            before = None
        if ours.is_mapping:
            return self._mappings(path, before or self._empty(ours), ours, theirs)
        merger = self._rules.beneath(path)
        if merger is not None:
            return self._call(merger, path, base, *parts)
        if parts[0] == parts[1]:
            return parts[0]
        if ours.is_set:
            return self._sets(before or self._empty(ours), ours, theirs)
        if before is not None:
            try:
                return self._sequences(path, before, ours, theirs)
            except Overlap:
                pass
        self._conflict(path, base, *parts)
        return parts[0]

    def _empty(self, like: Container) -> Container:
        view = View(like.view.layout, 0, [], self.builder.read)
        return Container(like.title, view, None, None)

    def _mappings(self, path: Path, base: Container, ours: Container, theirs: Container) -> bytes:
        before, after = differing(base.view, theirs.view, self.builder.read)
        old = {entry.key: entry.body for entry in before}
        new = {entry.key: entry.body for entry in after}
        spans: list[Span] = []
        for key in sorted(old.keys() | new.keys()):
            at, entry = ours.view.locate(key)
            our = None if entry is None else entry.body
            inner = (*path, ours.step(self._codec, key))
            part = self.parts(inner, old.get(key), our, new.get(key))
            if part != our:
                stop = at if entry is None else at + 1
                spans.append(Span(at, stop, [] if part is None else [Entry(key, part)]))
        order = self._order(base, ours, theirs, spans)
        return edit_mapping(self.builder, ours, in_turn(spans), order)

    def _order(
        self, base: Container, ours: Container, theirs: Container, spans: Sequence[Span]
    ) -> bytes | None:
        added = {span.entries[0].key for span in spans if span.start == span.stop}
        shrunk = any(not span.entries for span in spans)
        if ours.title.code == Code.MAP:
            return None
        if not added and not shrunk and theirs.order == base.order:
            return ours.order
        read = self.builder.read
        before, left, right = base.keys(read), ours.keys(read), theirs.keys(read)
        gone = self._gone(ours, spans)
        # Who did not touch the order follows the one who did.
        first, second = (right, left) if left == before else (left, right)
        present = (set(left) - gone) | added
        keys = [key for key in dict.fromkeys([*first, *second]) if key in present]
        return order_part(self.builder, ours.title, keys)

    def _gone(self, ours: Container, spans: Sequence[Span]) -> set[bytes]:
        removed = [span for span in spans if not span.entries]
        places = [(span.start, ours.view.node_at(0, span.start)) for span in removed]
        return {place.entries[at - place.start].key for at, place in places}

    def _sets(self, base: Container, ours: Container, theirs: Container) -> bytes:
        before, after = differing(base.view, theirs.view, self.builder.read)
        gone = {entry.body for entry in before} - {entry.body for entry in after}
        kept = [e.body for place in ours.view.leaves() for e in place.entries]
        members = dict.fromkeys(part for part in kept if part not in gone)
        members |= dict.fromkeys(entry.body for entry in after)
        parts = sorted(members, key=lambda part: self._codec.encode(self._loader.part(part)))
        return self.builder.sequence(ours.title, parts, ours.id).part

    def _sequences(self, path: Path, base: Container, ours: Container, theirs: Container) -> bytes:
        def settle(our: Hunk, their: Hunk) -> list[Any]:
            if our.new == their.new and not self._rules.run_on_equal(path):
                return our.new
            if not len(our.old) == len(our.new) == len(their.new) == 1:
                raise Overlap
            inner = (*path, our.new_start)
            bodies = [run[0].body for run in (our.old, our.new, their.new)]
            part = self.parts(inner, bodies[0], bodies[1], bodies[2])
            assert part is not None
            return [Entry(b"", part)]

        read = self.builder.read
        left = single(hunks(base.view, ours.view, read))
        right = single(hunks(base.view, theirs.view, read))
        steps = combine(left, right, settle)
        spans = [Span(step.start, step.stop, step.new) for step in steps]
        return edit_sequence(self.builder, ours, spans)
