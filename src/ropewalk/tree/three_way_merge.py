"""Three-way merge of values, by path. Here it is decided what is a conflict.

`_Merge.parts` is the heart: equal sides, or a side that equals the base, are no conflict; where
both sides changed a path, a merger decides; containers of one kind are merged part by part, and
whatever is left is a conflict. Subtrees that are equal are skipped, so the cost follows the
changes of both sides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from ropewalk.codec import Codec, Path, default_codec, format_path
from ropewalk.codec.atoms import CLASSES
from ropewalk.codec.msgpack import Code
from ropewalk.errors import InvalidInput, MergeConflict, NotStorable
from ropewalk.tree.build import Builder, Edited, finish
from ropewalk.tree.changes import (
    Overlap,
    combine,
    differing,
    hunks,
    hunks_of,
    new_items,
    single,
)
from ropewalk.tree.edit import embed_at, merged_order
from ropewalk.tree.embed import Embedder
from ropewalk.tree.levels import Span, View, in_turn
from ropewalk.tree.limits import refuse_deep
from ropewalk.tree.nodes import Entry
from ropewalk.tree.objects import ObjectId, Reader
from ropewalk.tree.read import (
    Container,
    Loader,
    Sorted,
    as_key,
    kind_of,
    marks_of,
    open_part,
    part_of,
    with_marks,
    writing,
)


class Absent:
    """The type of `ABSENT`."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent()
"""Stands for a value that is not there."""


class CannotMerge(Exception):
    """Raised by a merger to leave the two changes as a conflict."""


class Merger(NamedTuple):
    """A function of base, ours and theirs (`ABSENT` where there is none).

    It runs where both sides changed a path. With `on_equal`, also where both made
    the same change: two times `+1` is `+2`.
    """

    function: Callable[[Any, Any, Any], Any]
    on_equal: bool = False


MergerLike: TypeAlias = Merger | Callable[[Any, Any, Any], Any] | str
Mergers: TypeAlias = Mapping[Any, MergerLike]
Encode: TypeAlias = Callable[[Any], bytes]
_Steps: TypeAlias = tuple[bytes, ...]


def take_ours(base: Any, ours: Any, theirs: Any) -> Any:
    """Ours, whatever theirs is."""
    return ours


def take_theirs(base: Any, ours: Any, theirs: Any) -> Any:
    """Theirs, whatever ours is."""
    return theirs


def _add(base: Any, ours: Any, theirs: Any) -> Any:
    start = 0 if base is ABSENT else base
    if not all(map(_is_number, (start, ours, theirs))):
        raise CannotMerge("add needs numbers")
    try:
        return ours + theirs - start
    except (TypeError, ArithmeticError) as exc:
        raise CannotMerge("add needs numbers of one kind") from exc


def _is_number(value: Any) -> bool:
    decimal = sys.modules.get("decimal")
    return type(value) in (int, float, complex) or (
        decimal is not None and type(value) is decimal.Decimal
    )


def _append(encode: Encode, base: Any, ours: Any, theirs: Any) -> Any:
    start = type(ours)() if base is ABSENT and type(ours) in (list, tuple) else base
    if type(ours) not in (list, tuple) or not type(start) is type(ours) is type(theirs):
        raise CannotMerge("append needs lists")
    known, before = len(start), encode(start)
    if encode(ours[:known]) != before or encode(theirs[:known]) != before:
        raise CannotMerge("append needs lists that only grew")
    return ours + theirs[known:]


_COLLECTIONS = (set, frozenset, list, tuple)


def _union(encode: Encode, base: Any, ours: Any, theirs: Any) -> Any:
    start = type(ours)() if base is ABSENT and type(ours) in _COLLECTIONS else base
    if type(ours) not in _COLLECTIONS or not type(start) is type(ours) is type(theirs):
        raise CannotMerge("union needs sets or lists")
    before, left, right = (
        {encode(member): member for member in members} for members in (start, ours, theirs)
    )
    gone = (before.keys() - left.keys()) | (before.keys() - right.keys())
    members = [member for key, member in (left | right).items() if key not in gone]
    merged = type(ours)(members)
    if len(merged) < len(members):
        raise CannotMerge("the union holds members that Python takes for the same")
    return merged


def _text(base: Any, ours: Any, theirs: Any) -> Any:
    start = "" if base is ABSENT else base
    if not type(start) is type(ours) is type(theirs) is str:
        raise CannotMerge("text needs texts")
    before, left, right = (one.splitlines(keepends=True) for one in (start, ours, theirs))
    try:
        for step in reversed(combine(hunks_of(before, left), hunks_of(before, right))):
            left[step.start : step.stop] = new_items(step)
    except Overlap as exc:
        raise CannotMerge("both sides changed the same lines") from exc
    return "".join(left)


def built_in(encode: Encode) -> dict[str, Merger]:
    """The mergers that have names."""
    return {
        "ours": Merger(take_ours),
        "theirs": Merger(take_theirs),
        "append": Merger(partial(_append, encode), on_equal=True),
        "union": Merger(partial(_union, encode)),
        "add": Merger(_add, on_equal=True),
        "text": Merger(_text),
    }


class Rules:
    """Which merger is for which path.

    A key of `mergers` is a path (a tuple; a text stands for a path of one step), a
    prefix (a tuple that ends with `...`, for everything beneath that is not a dict),
    or a type. A path goes before a type, a type before a prefix, a long prefix before
    a short one.
    """

    def __init__(self, mergers: Mergers, encode: Encode) -> None:
        if not isinstance(mergers, Mapping):
            raise InvalidInput(f"mergers are a dict from paths or types, not {mergers!r}")
        self._encode = encode
        self._names = built_in(encode)
        self._paths: dict[_Steps, Merger] = {}
        self._prefixes: list[tuple[_Steps, Merger]] = []
        self.by_type: dict[type, Merger] = {}
        """The mergers for exactly these types."""
        for key, merger in mergers.items():
            self._add(key, self._merger(merger))
        self._prefixes.sort(key=lambda rule: -len(rule[0]))

    def _merger(self, given: MergerLike) -> Merger:
        if isinstance(given, str):
            if given not in self._names:
                known = ", ".join(self._names)
                raise InvalidInput(f"there is no merger {given!r}; the named ones are {known}")
            return self._names[given]
        merger = given if isinstance(given, Merger) else Merger(given)
        if not callable(merger.function):
            raise InvalidInput(f"a merger is a name or a function, not {merger.function!r}")
        return merger

    def _add(self, key: Any, merger: Merger) -> None:
        if isinstance(key, type):
            self.by_type[key] = merger
            return
        path = (key,) if isinstance(key, str) else key
        if not isinstance(path, tuple):
            raise InvalidInput(f"a merger is for a path, a prefix or a type, not for {key!r}")
        prefix = path[-1:] == (...,)
        try:
            steps = self._steps(path[:-1] if prefix else path)
        except NotStorable as exc:
            raise InvalidInput(f"a merger is for {key!r}, which is no path: {exc.reason}") from exc
        if prefix:
            self._prefixes.append((steps, merger))
        else:
            self._paths[steps] = merger

    def _steps(self, path: Path) -> _Steps:
        # Equality is that of bytes: a rule for 1 is none for True.
        return tuple([self._encode(as_key(step)) for step in path])

    def at(self, path: Path) -> Merger | None:
        """The merger for exactly this path."""
        return self._paths.get(self._steps(path)) if self._paths else None

    def beneath(self, path: Path) -> Merger | None:
        """The merger of the longest prefix of a path."""
        steps = self._steps(path) if self._prefixes else ()
        for prefix, merger in self._prefixes:
            if steps[: len(prefix)] == prefix:
                return merger
        return None

    def run_on_equal(self, path: Path) -> bool:
        """Whether equal changes at a path or beneath it still need a merger."""
        if any(merger.on_equal for merger in self.by_type.values()):
            return True
        steps, depth = self._steps(path), len(path)
        return any(
            merger.on_equal and known[:depth] == steps for known, merger in self._paths.items()
        ) or any(merger.on_equal and _related(known, steps) for known, merger in self._prefixes)


def _related(prefix: _Steps, steps: _Steps) -> bool:
    shorter = min(len(prefix), len(steps))
    return prefix[:shorter] == steps[:shorter]


class PathConflict(NamedTuple):
    """A path that both sides changed, with its three values."""

    path: Path
    base: Any
    ours: Any
    theirs: Any
    reason: str = "both sides changed it"

    def __str__(self) -> str:
        return f"{format_path(self.path)} ({self.reason})"


@writing
def merge(
    base: ObjectId | None,
    ours: ObjectId,
    theirs: ObjectId,
    read: Reader,
    *,
    mergers: Mergers | None = None,
    codec: Codec | None = None,
    exclusive: bool = False,
) -> Edited:
    """One value with the changes of both sides since `base`.

    Where both changed the same place, the merger for its path, type or prefix decides
    (see `Rules`). Without one, dicts merge by key, objects by field, lists by item, sets
    by member, and the rest raises MergeConflict with every such path. Indexes in these
    paths are those of ours.

    The order of a dict's keys is that of ours, and what theirs added comes last; where
    ours has the keys and the order of base, it is that of theirs.

    The same change on both sides counts once. If it is `exclusive`, that is a conflict
    too, unless a merger settles it.
    """
    known = (default_codec if codec is None else codec).showing()
    merging = _Merge(read, known, Rules(mergers or {}, known.encode), exclusive)
    start = None if base is None else part_of(base, read)
    part = merging.parts((), start, part_of(ours, read), part_of(theirs, read))
    if merging.conflicts:
        raise MergeConflict(merging.conflicts)
    if part is None:
        raise InvalidInput("a merger removed the top of the value")
    return refuse_deep(finish(merging.builder, part, ours))


class _Merge:
    """One merge. A part that is None is not there."""

    def __init__(self, read: Reader, codec: Codec, rules: Rules, exclusive: bool) -> None:
        self._exclusive = exclusive
        self.builder = Builder(read)
        self.conflicts: list[PathConflict] = []
        self._codec = codec
        self._rules = rules
        self._embedder = Embedder(codec, self.builder, {})
        self._loader = Loader(self.builder.read, codec)

    def parts(
        self, path: Path, base: bytes | None, ours: bytes | None, theirs: bytes | None
    ) -> bytes | None:
        """Merge the two sides of one place; conflicts are collected in `conflicts`."""
        again = self._exclusive or self._rules.run_on_equal(path)
        if ours == theirs and (ours == base or not again):
            return ours
        if base in (ours, theirs):
            return theirs if ours == base else ours
        merger = self._rules.at(path) or self._of_type(ours, theirs)
        if merger is not None:
            return self._call(merger, path, base, ours, theirs)
        left = None if ours is None else open_part(ours, self.builder.read)
        right = None if theirs is None else open_part(theirs, self.builder.read)
        if self._exclusive and ours == theirs and (left is None or not left.is_mapping):
            return self._settle(path, base, ours, theirs)
        if left is not None and right is not None and _alike(left, right):
            return self._containers(path, base, left, right, (ours, theirs))
        return self._settle(path, base, ours, theirs)

    def _of_type(self, ours: bytes | None, theirs: bytes | None) -> Merger | None:
        if not self._rules.by_type or ours is None or theirs is None:
            return None
        cls = self._class_of(ours)
        merger = None if cls is None else self._rules.by_type.get(cls)
        return merger if merger is not None and self._class_of(theirs) is cls else None

    def _class_of(self, part: bytes) -> type | None:
        """The class of a value; a container is not loaded for it."""
        opened = open_part(part, self.builder.read)
        if opened is None:
            return type(self._loader.part(part))
        if opened.title.code == Code.RECORD:
            entry = self._codec.registry.named(opened.title.head[0])
            return None if entry is None else entry.cls
        return _CLASSES.get(opened.title.code)

    def _settle(
        self, path: Path, base: bytes | None, ours: bytes | None, theirs: bytes | None
    ) -> bytes | None:
        """Call the merger for a place that cannot be merged by its parts, or note a conflict."""
        merger = self._rules.beneath(path)
        if merger is not None:
            return self._call(merger, path, base, ours, theirs)
        if ours != theirs:
            self._conflict(path, base, ours, theirs)
        elif self._exclusive:
            self._conflict(path, base, ours, theirs, "both sides made the same change")
        return ours

    def _call(
        self,
        merger: Merger,
        path: Path,
        base: bytes | None,
        ours: bytes | None,
        theirs: bytes | None,
    ) -> bytes | None:
        if merger.function is take_ours or (ours == theirs and not merger.on_equal):
            return ours
        if merger.function is take_theirs:
            return theirs
        try:
            merged = merger.function(self._load(base), self._load(ours), self._load(theirs))
        except CannotMerge as exc:
            # Equal changes are no conflict, even if the merger cannot combine them.
            if ours != theirs:
                self._conflict(path, base, ours, theirs, str(exc) or str(merger.function))
            return ours
        if merged is ABSENT:
            return None
        return embed_at(self._embedder, self._codec, path, merged, ours)

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
        if before is None or not _alike(before, ours):
            before = None
        if ours.is_mapping:
            return self._mappings(path, before or self._empty(ours), ours, theirs)
        merger = self._rules.beneath(path)
        if merger is not None:
            return self._call(merger, path, base, *parts)
        if ours.is_set:
            return self._sets(path, before or self._empty(ours), ours, theirs)
        known = len(self.conflicts)
        if before is not None:
            try:
                return self._sequences(path, before, ours, theirs)
            except Overlap:
                # One conflict for the whole list replaces those of its items.
                del self.conflicts[known:]
        if parts[0] != parts[1]:
            self._conflict(path, base, *parts)
        return parts[0]

    def _empty(self, like: Container) -> Container:
        view = View(like.view.layout, 0, [], self.builder.read)
        return Container(kind_of(like.title), view, None, None)

    def _mappings(self, path: Path, base: Container, ours: Container, theirs: Container) -> bytes:
        before, after = differing(base.view, theirs.view, self.builder.read)
        old = {entry.key: entry.body for entry in before}
        new = {entry.key: entry.body for entry in after}
        spans: list[Span] = []
        gone, added = set[bytes](), set[bytes]()
        for key in sorted(old.keys() | new.keys()):
            at, entry = ours.view.locate(key)
            our = None if entry is None else entry.body
            inner = (*path, ours.step(self._codec, key))
            part = self.parts(inner, old.get(key), our, new.get(key))
            if part == our:
                continue
            if our is None:
                added.add(key)
            elif part is None:
                gone.add(key)
            stop = at if our is None else at + 1
            spans.append(Span(at, stop, [] if part is None else [Entry(key, part)]))
        self._refuse_twins(path, ours, gone, {key: new.get(key) for key in added})
        order = merged_order(self.builder, (base, ours, theirs), gone, added)
        ours = self._marked(base, ours, theirs, gone, added)
        return ours.edited(self.builder, in_turn(spans), order)

    def _refuse_twins(
        self, path: Path, ours: Container, gone: set[bytes], added: dict[bytes, bytes | None]
    ) -> None:
        """Note a conflict where ours has a key that is `==` to a new one, such as 1 and True."""
        if ours.title.code in (Code.MAP, Code.RECORD):
            return
        known = Sorted(ours.view, self.builder.read, self._codec)
        for key, part in sorted(added.items()):
            twin = known.twin(key, gone)
            if twin is not None:
                inner = (*path, ours.step(self._codec, key))
                self._conflict(inner, None, None, part, f"ours has {twin!r}, which equals it")

    def _marked(
        self,
        base: Container,
        ours: Container,
        theirs: Container,
        gone: set[bytes],
        added: set[bytes],
    ) -> Container:
        """Ours with the marks of both sides, where it is a model that has some."""
        if ours.title == theirs.title:
            return ours
        read = self.builder.read
        before, left, right = (marks_of(one.title, one.keys(read)) for one in (base, ours, theirs))
        marks = (left | right) - (before - left) - (before - right)
        keys = (set(ours.keys(read)) - gone) | added
        return ours._replace(title=with_marks(ours.title, keys, marks))

    def _sets(self, path: Path, base: Container, ours: Container, theirs: Container) -> bytes:
        before, after = differing(base.view, theirs.view, self.builder.read)
        known = Sorted(ours.view, self.builder.read, self._codec)
        gone = self._members(before)
        added = self._members(after)
        spans: list[Span] = []
        for member in sorted(gone.keys() | added.keys()):
            at = known.position(member)
            there = at < ours.view.total and known.at(at) == member
            if member in added and not there:
                spans.append(Span(at, at, [Entry(b"", added[member])]))
            elif member in gone and there:
                spans.append(Span(at, at + 1, []))
        self._refuse_twins(path, ours, set(gone), dict(added))
        return ours.edited(self.builder, in_turn(spans))

    def _members(self, entries: list[Entry]) -> dict[bytes, bytes]:
        """The parts of members by their encodings."""
        return {self._codec.encode(self._loader.part(entry.body)): entry.body for entry in entries}

    def _sequences(self, path: Path, base: Container, ours: Container, theirs: Container) -> bytes:
        read = self.builder.read
        left = single(hunks(base.view, ours.view, read))
        right = single(hunks(base.view, theirs.view, read))
        spans: list[Span] = []
        for step in combine(left, right):
            runs = None if step.ours is None else (step.ours.old, step.ours.new, step.theirs.new)
            if runs is not None and all(len(run) == 1 for run in runs):
                part = self.parts((*path, step.start), *[run[0].body for run in runs])
                entries = [] if part is None else [Entry(b"", part)]
            else:
                entries = new_items(step)
            if step.ours is None or entries != step.ours.new:
                spans.append(Span(step.start, step.stop, entries))
        grown = sum([len(span.entries) - (span.stop - span.start) for span in spans])
        if ours.maxlen is not None and ours.view.total + grown > ours.maxlen:
            raise Overlap  # Together both sides exceed the maxlen of a deque.
        return ours.edited(self.builder, spans)


_CLASSES = {
    Code.LIST: list,
    Code.TUPLE: tuple,
    Code.DICT: dict,
    Code.SET: set,
    Code.FROZENSET: frozenset,
    **CLASSES,
}


def _alike(one: Container, other: Container) -> bool:
    return kind_of(one.title) == kind_of(other.title)
