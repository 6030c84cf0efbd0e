"""Mergers: how two changes of one path become one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from holdfast.codec import Path, format_path
from holdfast.errors import InvalidInput
from holdfast.tree._runs import Overlap, combine, hunks_of, same_or_overlap


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


def _ours(base: Any, ours: Any, theirs: Any) -> Any:
    return ours


def _theirs(base: Any, ours: Any, theirs: Any) -> Any:
    return theirs


def _add(base: Any, ours: Any, theirs: Any) -> Any:
    start = 0 if base is ABSENT else base
    if not all(map(_is_number, (start, ours, theirs))):
        raise CannotMerge("add needs numbers")
    try:
        return ours + theirs - start
    except TypeError as exc:
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
    return type(ours)([member for key, member in (left | right).items() if key not in gone])


def _text(base: Any, ours: Any, theirs: Any) -> Any:
    start = "" if base is ABSENT else base
    if not type(start) is type(ours) is type(theirs) is str:
        raise CannotMerge("text needs texts")
    before, left, right = (one.splitlines(keepends=True) for one in (start, ours, theirs))
    try:
        steps = combine(hunks_of(before, left), hunks_of(before, right), same_or_overlap)
    except Overlap as exc:
        raise CannotMerge("both sides changed the same lines") from exc
    for step in reversed(steps):
        left[step.start : step.stop] = step.new
    return "".join(left)


def built_in(encode: Encode) -> dict[str, Merger]:
    """The mergers that have names."""
    return {
        "ours": Merger(_ours),
        "theirs": Merger(_theirs),
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
        self._names = built_in(encode)
        self._paths: dict[Path, Merger] = {}
        self._prefixes: list[tuple[Path, Merger]] = []
        self._types: dict[type, Merger] = {}
        for key, merger in mergers.items():
            self._add(key, self._merger(merger))
        self._prefixes.sort(key=lambda rule: -len(rule[0]))

    def _merger(self, given: MergerLike) -> Merger:
        if isinstance(given, Merger):
            return given
        if isinstance(given, str):
            if given not in self._names:
                known = ", ".join(self._names)
                raise InvalidInput(f"there is no merger {given!r}; the named ones are {known}")
            return self._names[given]
        if not callable(given):
            raise InvalidInput(f"a merger is a name or a function, not {given!r}")
        return Merger(given)

    def _add(self, key: Any, merger: Merger) -> None:
        if isinstance(key, type):
            self._types[key] = merger
        elif isinstance(key, str):
            self._paths[(key,)] = merger
        elif not isinstance(key, tuple):
            raise InvalidInput(f"a merger is for a path, a prefix or a type, not for {key!r}")
        elif key[-1:] == (...,):
            self._prefixes.append((key[:-1], merger))
        else:
            self._paths[key] = merger

    @property
    def by_type(self) -> bool:
        """Whether any merger is for a type."""
        return bool(self._types)

    def at(self, path: Path) -> Merger | None:
        """The merger for exactly this path."""
        return self._paths.get(path) if self._paths else None

    def of_type(self, cls: type) -> Merger | None:
        """The merger for exactly this type."""
        return self._types.get(cls)

    def beneath(self, path: Path) -> Merger | None:
        """The merger of the longest prefix of a path."""
        for prefix, merger in self._prefixes:
            if path[: len(prefix)] == prefix:
                return merger
        return None

    def run_on_equal(self, path: Path) -> bool:
        """Whether equal changes at a path or beneath it still need a merger."""
        depth = len(path)
        return (
            any(merger.on_equal for merger in self._types.values())
            or any(m.on_equal and known[:depth] == path for known, m in self._paths.items())
            or any(m.on_equal and _related(known, path) for known, m in self._prefixes)
        )


def _related(prefix: Path, path: Path) -> bool:
    shorter = min(len(prefix), len(path))
    return prefix[:shorter] == path[:shorter]


class PathConflict(NamedTuple):
    """A path that both sides changed, with its three values."""

    path: Path
    base: Any
    ours: Any
    theirs: Any
    reason: str = "both sides changed it"

    def __str__(self) -> str:
        return f"{format_path(self.path)} ({self.reason})"
