"""Runs of objects are compared by what they hold, and every change of one is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, PrivateAttr

from ropewalk.codec import Codec
from ropewalk.tree import TreeWriter


class Message(BaseModel):
    model_config = ConfigDict(extra="allow")
    content: Any
    meta: dict[str, Any] = {}
    name: str | None = None


class Kin(Message):
    pass


class Secret(BaseModel):
    content: str
    _seen: int = PrivateAttr(default=0)


@dataclass
class Note:
    content: Any
    meta: dict[str, Any] = field(default_factory=dict)
    name: str | None = None


def _set_extra(one: Any) -> None:
    one.other = 1


def _reorder(one: Any) -> None:
    one.__dict__["content"] = one.__dict__.pop("content")


_CHANGES: dict[str, Callable[[Any], None]] = {
    "a text": lambda one: setattr(one, "content", "changed"),
    "a field that was not set": lambda one: setattr(one, "name", None),
    "a dict in place": lambda one: one.meta.update(tags=["a"]),
    "something deep in place": lambda one: one.meta["deep"][0].append(1),
    "true for one": lambda one: one.meta.update(number=True),
    "minus zero": lambda one: one.meta.update(zero=-0.0),
    "bytes": lambda one: setattr(one, "content", b"bytes"),
    "a bytearray": lambda one: setattr(one, "content", bytearray(b"bytes")),
    "a tuple": lambda one: one.meta.update(deep=([],)),
    "a set": lambda one: setattr(one, "content", {1, 2}),
}


def _meta() -> dict[str, Any]:
    return {"deep": [[]], "number": 1, "zero": 0.0}


_MADE: dict[str, Callable[[int], Any]] = {
    "model": lambda at: Message(content=f"message {at} " * 40, meta=_meta()),
    "dataclass": lambda at: Note(f"message {at} " * 40, _meta()),
}


@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.parametrize("kind", _MADE)
@pytest.mark.parametrize("lean", [False, True])
def test_a_change_of_any_object_is_found(kind: str, change: str, lean: bool) -> None:
    values = [_MADE[kind](at) for at in range(120)]
    writer = TreeWriter(lean=lean)
    writer.accept(writer.write(values))
    for at in (0, 60, 119):
        _CHANGES[change](values[at])
        written = writer.write(values)
        writer.accept(written)

        assert written.root == TreeWriter().write(values).root
        assert written.objects or (kind, change) == ("dataclass", "a field that was not set")


@pytest.mark.parametrize(
    "change",
    [_set_extra, lambda one: setattr(one, "__class__", Kin)],
    ids=["an extra value", "another class"],
)
def test_what_a_model_holds_beside_its_fields_is_seen(change: Callable[[Any], None]) -> None:
    values = [_MADE["model"](at) for at in range(120)]
    writer = TreeWriter()
    writer.accept(writer.write(values))
    change(values[60])
    written = writer.write(values)

    assert written.root == TreeWriter().write(values).root
    assert written.objects


def test_private_values_are_seen() -> None:
    values = [Secret(content=f"message {at} " * 40) for at in range(120)]
    writer = TreeWriter()
    writer.accept(writer.write(values))
    values[60]._seen = 1
    written = writer.write(values)

    assert written.root == TreeWriter().write(values).root
    assert written.objects


def test_fields_in_another_order_are_stored_as_before() -> None:
    values = [_MADE["dataclass"](at) for at in range(120)]
    writer = TreeWriter()
    writer.accept(writer.write(values))
    _reorder(values[60])

    assert writer.write(values).root == TreeWriter().write(values).root


def test_other_objects_that_hold_the_same_make_nothing_new() -> None:
    writer = TreeWriter()
    writer.accept(writer.write([_MADE["model"](at) for at in range(120)]))

    assert writer.write([_MADE["model"](at) for at in range(120)]).objects == []


def test_a_class_that_is_declared_anew_is_stored_anew() -> None:
    codec = Codec(types=[Note])
    values = [_MADE["dataclass"](at) for at in range(120)]
    writer = TreeWriter(codec)
    writer.accept(writer.write(values))
    again = Codec()
    again.registry.register(Note, version=2)
    other = TreeWriter(again)
    other.accept(other.write(values))

    assert other.root != writer.root


def test_objects_and_dicts_in_one_list_are_told_apart() -> None:
    values: list[Any] = [_MADE["model"](at) for at in range(120)]
    values[40] = {"content": "a dict"}
    values[80] = _MADE["dataclass"](80)
    writer = TreeWriter()
    writer.accept(writer.write(values))
    for at in (40, 80, 81):
        values[at] = values[at].__dict__ if at > 40 else _MADE["model"](at)
        written = writer.write(values)
        writer.accept(written)

        assert written.root == TreeWriter().write(values).root
        assert written.objects


def test_a_growing_conversation_is_what_it_is_when_written_at_once() -> None:
    writer, values = TreeWriter(), []
    for at in range(150):
        values.append(_MADE["model"](at))
        writer.accept(writer.write(values))
    values[3].meta["deep"][0].append("in place")

    assert writer.write(values).root == TreeWriter().write(values).root
