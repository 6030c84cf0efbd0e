"""Mergers: how two changes of one path become one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from ropewalk.codec import Path, format_path
from ropewalk.errors import InvalidInput, NotStorable
from ropewalk.tree.container import as_key
from ropewalk.tree.runs import Overlap, combine, hunks_of, new_items


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
        self._types: dict[type, Merger] = {}
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
            self._types[key] = merger
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

    @property
    def by_type(self) -> bool:
        """Whether any merger is for a type."""
        return bool(self._types)

    def at(self, path: Path) -> Merger | None:
        """The merger for exactly this path."""
        return self._paths.get(self._steps(path)) if self._paths else None

    def of_type(self, cls: type) -> Merger | None:
        """The merger for exactly this type."""
        return self._types.get(cls)

    def beneath(self, path: Path) -> Merger | None:
        """The merger of the longest prefix of a path."""
        steps = self._steps(path) if self._prefixes else ()
        for prefix, merger in self._prefixes:
            if steps[: len(prefix)] == prefix:
                return merger
        return None

    def run_on_equal(self, path: Path) -> bool:
        """Whether equal changes at a path or beneath it still need a merger."""
        if any(merger.on_equal for merger in self._types.values()):
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
