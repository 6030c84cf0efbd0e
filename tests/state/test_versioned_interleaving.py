"""A change by another thread after any line of a commit: it is in that commit, or in the next."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from ropewalk.codec import default_codec
from ropewalk.state import Versioned
from tests.conftest import SOAK
from tests.state.large import messages, sentence

Change = Callable[[Any, int], object]
MOMENTS = 500 if SOAK else 6


def _deep() -> Any:
    return {"a": [{"b": [messages(40), {"c": (messages(40), sentence(1, 9_000))}]}, 1]}


SHAPES: dict[str, tuple[Callable[[], Any], Change]] = {
    "append to a long list": (
        lambda: messages(200),
        lambda value, number: value.append(number),
    ),
    "change of two items far apart": (
        lambda: messages(200),
        lambda value, number: (value[3].update(content=number), value[190].update(x=number)),
    ),
    "insertion at the start": (
        lambda: messages(200),
        lambda value, number: value.insert(0, number),
    ),
    "removal in the middle": (
        lambda: messages(200),
        lambda value, number: value.pop(100),
    ),
    "a shorter and another list": (
        lambda: messages(200),
        lambda value, number: value.__setitem__(slice(20, 60), [number] * 5),
    ),
    "values of a dict": (
        lambda: {str(n): [sentence(n)] for n in range(300)},
        lambda value, number: (value["7"].append(number), value["250"].append(number)),
    ),
    "keys of a dict": (
        lambda: {str(n): [sentence(n)] for n in range(300)},
        lambda value, number: (value.pop(str(number)), value.update({f"n{number}": [number]})),
    ),
    "the order of a dict": (
        lambda: {str(n): [sentence(n)] for n in range(300)},
        lambda value, number: value.update({"9": value.pop("9")}),
    ),
    "keys that are numbers": (
        lambda: {n: [sentence(n)] for n in range(300)},
        lambda value, number: (value[7].append(number), value.update({-number: 1})),
    ),
    "members of a set": (
        lambda: {"set": set(range(800)), "list": messages(50)},
        lambda value, number: (value["set"].add(-number), value["set"].discard(number)),
    ),
    "a long text": (
        lambda: {"text": sentence(1, 50_000), "list": messages(50)},
        lambda value, number: value.update(text=sentence(number, 50_000)),
    ),
    "bytes in place": (
        lambda: [bytearray(sentence(1, 60_000).encode()), messages(20)],
        lambda value, number: value[0].__setitem__(number * 500, 1),
    ),
    "deep inside": (
        _deep,
        lambda value, number: (
            value["a"][0]["b"][0].append(number),
            value["a"][0]["b"][1]["c"][0][5].update(content=number),
        ),
    ),
    "a small value": (
        lambda: {"a": [1, {"b": []}]},
        lambda value, number: value["a"][1]["b"].append(number),
    ),
    "small becomes large": (
        lambda: {"a": []},
        lambda value, number: value["a"].extend(messages(40, start=number * 100)),
    ),
    "large becomes small": (
        lambda: {"a": messages(60), "b": messages(60)},
        lambda value, number: value.update(a=value["a"][:number]),
    ),
}


def traced(stop: int, act: Callable[[], object], call: Callable[[], object]) -> int:
    """Call, and act in another thread after so many lines of ours; how many lines there were."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        name = frame.f_code.co_filename
        if "/ropewalk/tree/" not in name and "/ropewalk/codec/" not in name:
            return trace if "/ropewalk/" in name else None
        if event == "line":
            lines += 1
            if lines == stop:
                other = threading.Thread(target=act)
                other.start()
                other.join()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def shared(call: Callable[[], object]) -> None:
    """Call while there is another thread, which is what makes a state careful."""
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    try:
        call()
    finally:
        ended.set()
        other.join()


def changed_at(stop: int, make: Callable[[], Any], change: Change, loaded: bool) -> int:
    """Change a value after a line of its commit, and compare what is stored in the end."""
    state = Versioned()
    state["x"], state["y"] = make(), [1]
    state.commit()
    if loaded:
        state = state.session()
    value = state["x"]
    change(value, 1)
    lines = 0

    def commit() -> None:
        nonlocal lines
        lines = traced(stop, lambda: change(value, 2), state.commit)

    shared(commit)
    for number in (3, 4):
        shared(state.commit)
        stored = state.session()["x"]
        assert default_codec.encode(stored) == default_codec.encode(value), stop
        change(value, number)
    return lines


@pytest.mark.parametrize("loaded", [False, True], ids=["held", "read"])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_change_after_any_line_of_a_commit_is_found(shape: str, loaded: bool) -> None:
    lines = changed_at(0, *SHAPES[shape], loaded)
    moments = range(1, lines + 1)
    if lines > MOMENTS:
        moments = sorted(random.Random(shape).sample(moments, MOMENTS))  # type: ignore[assignment]
    for stop in moments:
        changed_at(stop, *SHAPES[shape], loaded)

    assert lines > 20
