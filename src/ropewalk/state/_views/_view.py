"""`view`: a state as text for a person or a prompt, within a budget of tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ropewalk.codec import Path, format_path, parse_path
from ropewalk.errors import InvalidInput
from ropewalk.state._views._looking import Source, source_of
from ropewalk.state._views._nodes import Node, plain_text
from ropewalk.state._views._render import estimate, render

_TRIES = 8
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FOCUSES = ("full", "recent", "changes")


def view(
    state: Mapping[Any, Any],
    focus: str | Path = "full",
    *,
    max_tokens: int = 4096,
    count: Callable[[str], int] | None = None,
) -> str:
    """A state as text, of at most `max_tokens` tokens.

    `focus` is `"full"` (all keys), `"recent"` (what the last commits changed),
    `"changes"` (what is not committed yet, or what the commit of a checkout changed), or
    a path: a tuple, or a text such as `docs[3].title`. The part of a key that is called
    like one of these words is shown by a tuple: `("full",)`.

    What does not fit is cut fairly: every key gets a line before any gets more, long
    texts lose their middle, and large collections show their beginning, their end and a
    count. Only what is shown is read from a store, or little more. Tokens are estimated
    (about four characters each, fewer for other scripts than Latin); `count`, a function
    from a text to its number of tokens, makes them exact. Nothing is downloaded.

    Raises `InvalidInput`, and `PathNotFound` for a path that leads nowhere.
    """
    if type(max_tokens) is not int or max_tokens < 1:
        raise InvalidInput(f"max_tokens is a whole number from 1 on, not {max_tokens!r:.80}")
    title, node = _focused(source_of(state), focus)
    return _fitting(title, node, max_tokens, count or _whole_estimate)


def _focused(source: Source, focus: str | Path) -> tuple[str, Node]:
    if not isinstance(focus, (str, tuple)):
        raise InvalidInput(
            f"focus is one of {', '.join(map(repr, _FOCUSES))}, or a path, not {focus!r:.80}"
        )
    if focus in ("full", "state", ()):
        return source.title, source.full()
    if focus == "recent":
        return f"{source.title}, what its last commits changed", source.recent()
    if focus == "changes":
        return f"{source.title}, what changed", source.changes()
    path = parse_path(focus) if isinstance(focus, str) else focus
    return f"{source.title}, {format_path(path, 'state')}", source.at(path)


def _whole_estimate(text: str) -> int:
    return -int(-estimate(text) // 1)


def _printable(text: str) -> str:
    """A text that any terminal takes, and that does nothing to it."""
    text = _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text.encode("utf-8", "backslashreplace").decode()


def _fitting(title: str, node: Node, most: int, count: Callable[[str], int]) -> str:
    """The text of a node that takes at most so many tokens."""
    budget = float(most)
    text = ""
    for _ in range(_TRIES):
        text = _printable("\n".join(_lines(title, node, budget)))
        tokens = count(text)
        if tokens <= most:
            return text
        # What counts exactly may count more than the estimate.
        budget *= 0.95 * most / tokens
    while text and count(text) > most:
        text = text[: len(text) * 9 // 10]
    return text


def _lines(title: str, node: Node, budget: float) -> list[str]:
    lines = [title]
    room = budget - estimate(title) - 1
    if room < 1:
        lines, room = [], budget - 1
    if node.shape == "lines" and not node.count:
        node = plain_text("(empty)")
    if node.text is not None or not node.count:
        return [*lines, *_alone(node, room)]
    return [*lines, *render(node, room)]


def _alone(node: Node, room: float) -> list[str]:
    """A value without parts, or an empty container."""
    single = Node("", "lines", 1, lambda start, stop: [("value", node)][start:stop])
    lines = render(single, room)
    if lines[:1] == ["value:"]:
        return [line.removeprefix("  ") for line in lines[1:]]
    return [line.removeprefix("value: ") for line in lines]
