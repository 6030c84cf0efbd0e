"""What changed between two versions of an artifact: a unified diff of text, a JSON patch of data.

Pure. Both are exact: a patch, applied to the text that it was made from, gives the other text to
the last character. Lines are what stands between newlines, so that no kind of line end is lost.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple, TypeAlias

from ropewalk.errors import InvalidInput

JsonPatch: TypeAlias = "list[dict[str, Any]]"
"""Operations of RFC 6902, of which `add`, `remove` and `replace` are used."""

_CONTEXT: Final = 1
_MOST_COMPARED: Final = 4_000_000
"""Up to so many pairs of lines are compared; beyond it they are replaced as one."""
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_DEEPEST: Final = 200


class Shown(NamedTuple):
    """A value as a model is shown it."""

    text: str
    is_data: bool
    """Whether it is JSON, whose patches are JSON patches; else they are unified diffs."""


def shown(value: Any) -> Shown:
    """A text as it is, plain data as JSON with sorted keys; raises `InvalidInput` for the rest."""
    if isinstance(value, str):
        return Shown(str(value), False)
    return Shown(json_text(_plain(value, "value", 0)), True)


def json_text(plain: Any) -> str:
    """JSON with sorted keys, in as few characters as it takes."""
    return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _plain(value: Any, path: str, depth: int) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if depth < _DEEPEST:
        if isinstance(value, list | tuple):
            return [_plain(one, f"{path}[{i}]", depth + 1) for i, one in enumerate(value)]
        if isinstance(value, dict) and all(type(key) is str for key in value):
            return {key: _plain(one, f"{path}[{key!r}]", depth + 1) for key, one in value.items()}
    raise InvalidInput(
        f"{path} is a {type(value).__name__} that JSON cannot say: give `show=`, a function that "
        "turns a value into text or plain data"
    )


def patch(base: Shown, new: Shown) -> str | None:
    """What turns a text into another; None if nothing shorter than the new one does."""
    if base.is_data != new.is_data:
        return None
    if new.is_data:
        made = json_text(json_patch(json.loads(base.text), json.loads(new.text)))
    else:
        made = unified_diff(base.text, new.text)
    return made if len(made) < len(new.text) else None


def apply(base: Shown, change: str) -> Shown:
    """The text that a patch makes of its base; raises `InvalidInput` if it is of another one."""
    if base.is_data:
        return Shown(json_text(apply_json_patch(json.loads(base.text), json.loads(change))), True)
    return Shown(apply_unified_diff(base.text, change), False)


# Text.


def unified_diff(base: str, new: str) -> str:
    """The hunks of a unified diff, without the lines that name files."""
    old, now = base.split("\n"), new.split("\n")
    lines: list[str] = []
    for group in _hunks(_steps(old, now)):
        (_, old_start, _, now_start, _), (_, _, old_end, _, now_end) = group[0], group[-1]
        lines.append(f"@@ -{_span(old_start, old_end)} +{_span(now_start, now_end)} @@")
        for kind, a, b, c, d in group:
            if kind == "equal":
                lines += [f" {line}" for line in old[a:b]]
            else:
                lines += [f"-{line}" for line in old[a:b]]
                lines += [f"+{line}" for line in now[c:d]]
    return "\n".join(lines)


_Step: TypeAlias = tuple[str, int, int, int, int]


def _steps(old: Sequence[str], now: Sequence[str]) -> list[_Step]:
    """Opcodes as of `SequenceMatcher`, which is only given what is between equal ends."""
    shorter = min(len(old), len(now))
    head = next((i for i in range(shorter) if old[i] != now[i]), shorter)
    room = shorter - head
    tail = next((i for i in range(room) if old[-1 - i] != now[-1 - i]), room)
    left, right = old[head : len(old) - tail], now[head : len(now) - tail]
    steps: list[_Step] = [("equal", 0, head, 0, head)] if head else []
    if len(left) * len(right) > _MOST_COMPARED:
        steps.append(("replace", head, head + len(left), head, head + len(right)))
    elif left or right:
        matched = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
        steps += [(kind, a + head, b + head, c + head, d + head) for kind, a, b, c, d in matched]
    if tail:
        steps.append(("equal", len(old) - tail, len(old), len(now) - tail, len(now)))
    return steps


def _hunks(steps: list[_Step]) -> Iterator[list[_Step]]:
    """Changes with a line around them; those that stand close together are one hunk."""
    hunk: list[_Step] = []
    for index, (kind, a, b, c, d) in enumerate(steps):
        if kind != "equal":
            hunk.append((kind, a, b, c, d))
            continue
        after = 0 if index == 0 else min(_CONTEXT, b - a)
        before = 0 if index == len(steps) - 1 else min(_CONTEXT, b - a)
        if hunk and before and b - a <= after + before:
            hunk.append((kind, a, b, c, d))
            continue
        if hunk:
            yield [*hunk, ("equal", a, a + after, c, c + after)]
        hunk = [("equal", b - before, b, d - before, d)] if before else []
    if hunk:
        yield hunk


def _span(start: int, end: int) -> str:
    count = end - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def apply_unified_diff(base: str, change: str) -> str:
    """The text that a unified diff makes of its base."""
    old, made, position = base.split("\n"), list[str](), 0
    lines = iter(change.split("\n")) if change else iter(())
    for head in lines:
        found = _HUNK.fullmatch(head)
        if found is None:
            raise InvalidInput(f"this is no hunk of a unified diff: {head!r:.80}")
        removed, added = (int(one) if one is not None else 1 for one in (found[2], found[4]))
        start = int(found[1]) - (1 if removed else 0)
        made += old[position:start]
        position = start
        while removed or added:
            line = next(lines, None)
            if line is None or line[:1] not in (" ", "-", "+"):
                raise InvalidInput("a hunk of the unified diff ends too early")
            sign, rest = line[0], line[1:]
            if sign != "+":
                if position >= len(old) or old[position] != rest:
                    raise InvalidInput(f"the unified diff is of another text: {rest!r:.80}")
                position, removed = position + 1, removed - 1
            if sign != "-":
                made.append(rest)
                added -= 1
    return "\n".join(made + old[position:])


# Data.


def json_patch(base: Any, new: Any) -> JsonPatch:
    """The operations that turn plain data into other plain data."""
    return list(_operations(base, new, ""))


def _operations(base: Any, new: Any, path: str) -> Iterator[dict[str, Any]]:
    if type(base) is dict and type(new) is dict:
        for key in sorted(base.keys() - new.keys()):
            yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
        for key in sorted(new):
            inner = f"{path}/{_escaped(key)}"
            if key in base:
                yield from _operations(base[key], new[key], inner)
            else:
                yield {"op": "add", "path": inner, "value": new[key]}
    elif type(base) is list and type(new) is list:
        yield from _list_operations(base, new, path)
    elif not _same(base, new):
        yield {"op": "replace", "path": path, "value": new}


def _list_operations(base: list[Any], new: list[Any], path: str) -> Iterator[dict[str, Any]]:
    shorter = min(len(base), len(new))
    head = next((i for i in range(shorter) if not _same(base[i], new[i])), shorter)
    room = shorter - head
    tail = next((i for i in range(room) if not _same(base[-1 - i], new[-1 - i])), room)
    old_end, new_end = len(base) - tail, len(new) - tail
    both = min(old_end, new_end)
    for index in range(head, both):
        yield from _operations(base[index], new[index], f"{path}/{index}")
    for index in range(old_end - 1, both - 1, -1):
        yield {"op": "remove", "path": f"{path}/{index}"}
    for index in range(both, new_end):
        yield {"op": "add", "path": f"{path}/{index}", "value": new[index]}


def _same(left: Any, right: Any) -> bool:
    """Equality of what JSON says: 1, 1.0 and true are three values."""
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if type(left) is list:
        return len(left) == len(right) and all(map(_same, left, right))
    return repr(left) == repr(right) if type(left) is float else left == right


def apply_json_patch(base: Any, operations: JsonPatch) -> Any:
    """The data that operations make of their base, which they may change."""
    root = [base]
    for one in operations:
        try:
            _apply(root, one)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise InvalidInput(f"the JSON patch is of another value, at {one!r:.80}") from error
    return root[0]


def _apply(root: list[Any], operation: dict[str, Any]) -> None:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")]
    place: Any = root
    steps[0] = "0"
    for step in steps[:-1]:
        place = place[int(step) if type(place) is list else step]
    last: Any = int(steps[-1]) if type(place) is list else steps[-1]
    match operation["op"]:
        case "remove":
            del place[last]
        case "replace":
            place[last]  # It must be there.
            place[last] = operation["value"]
        case "add" if type(place) is list and place is not root:
            if last > len(place):
                raise IndexError(last)
            place.insert(last, operation["value"])
        case "add":
            place[last] = operation["value"]
        case other:
            raise InvalidInput(f"a JSON patch with the operation {other!r:.80} is not ours")


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
