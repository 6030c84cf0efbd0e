"""What a node, a path or a caller hands to LangGraph, in all its shapes, with references in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, Protocol

from langgraph.types import Command, Overwrite, Send
from pydantic import BaseModel

from ropewalk.adapters._base import Update
from ropewalk.adapters.langgraph._adapter_state import raw_items
from ropewalk.state import AgentState
from ropewalk.store import Store

Pairs = Sequence[tuple[str, Any]]


class Convert(Protocol):
    """Takes fields with values, and gives them with references to a store."""

    store: Store

    def __call__(self, pairs: Pairs) -> list[tuple[str, Any]]: ...


_OVERWRITE = "__overwrite__"


def converted(result: Any, convert: Convert) -> Any:
    """A result with references in the places of externalized fields, whatever its shape.

    What LangGraph takes: a dict, an object with annotated fields, a `Command`, a `Send`, a
    list of these. Names of nodes, None and values of other shapes stay as they are.
    """
    if result is None or isinstance(result, str):
        return result
    if isinstance(result, Command):
        return _command(result, convert)
    if isinstance(result, Send):
        return Send(result.node, _argument(result.arg, convert), timeout=result.timeout)
    if isinstance(result, (list, tuple)):
        return _sequence(result, convert)
    return _fields(result, convert)


def is_empty_of(result: Any, names: Iterable[str]) -> bool:
    """Whether a result is a dict without any of these fields, so that nothing is to be stored."""
    return result is None or (isinstance(result, dict) and not any(one in result for one in names))


def overwritten(value: Any) -> tuple[bool, Any]:
    """Whether a value says that it goes past the reducer, and what it holds."""
    if isinstance(value, Overwrite):
        return True, value.value
    if isinstance(value, dict):
        if value.keys() == {_OVERWRITE}:
            return True, value[_OVERWRITE]
        if value.get("type") == _OVERWRITE and "value" in value:
            return True, value["value"]
    return False, value


def _command(command: Command[Any], convert: Convert) -> Command[Any]:
    update = command.update
    if isinstance(update, (list, tuple)) and all(map(_is_pair, update)):
        update = convert(update)
    else:
        update = _fields(update, convert)
    goto = command.goto
    if isinstance(goto, (list, tuple)):
        goto = [converted(one, convert) for one in goto]
    else:
        goto = converted(goto, convert)
    return replace(command, update=update, goto=goto)


def _sequence(result: Sequence[Any], convert: Convert) -> Any:
    made = [converted(one, convert) for one in result]
    return made if isinstance(result, list) else tuple(made)


def with_fields(given: Any, values: Mapping[str, Any]) -> Any:
    """An object of the same class with other values in some fields."""
    if not values:
        return given
    if isinstance(given, BaseModel):
        return given.model_copy(update=dict(values))
    return replace(given, **values)


def is_object(given: Any) -> bool:
    """Whether it has fields as attributes, as LangGraph takes them."""
    return isinstance(given, BaseModel) or (is_dataclass(given) and not isinstance(given, type))


def _fields(given: Any, convert: Convert) -> Any:
    """Fields with values, if it is such a thing, as an update."""
    if isinstance(given, dict):
        return Update(convert(raw_items(given, convert.store)))
    if isinstance(given, AgentState):
        return Update(convert(_of_state(given)))
    if is_object(given):
        changed = _changed(given, convert)
        # An object stays itself unless something in it has to be stored.
        return Update({**dict(_of_object(given)), **changed}) if changed else given
    return given


def _argument(given: Any, convert: Convert) -> Any:
    """What a node is sent: an object stays one, because that is what the node expects."""
    return (
        with_fields(given, _changed(given, convert))
        if is_object(given)
        else _fields(given, convert)
    )


def _changed(given: Any, convert: Convert) -> dict[str, Any]:
    """The fields of an object whose values have become references."""
    pairs = _of_object(given)
    made = zip(pairs, convert(pairs), strict=True)
    return {name: now for (name, before), (_, now) in made if now is not before}


def _of_state(state: AgentState) -> Pairs:
    fields = state.fields()
    return [
        (name, state.ref(name) if fields[name].is_externalized else state[name]) for name in state
    ]


def _of_object(given: Any) -> Pairs:
    """The fields that LangGraph would take from an object: those that say something."""
    if isinstance(given, BaseModel):
        defaults = {name: one.default for name, one in type(given).model_fields.items()}
        said = given.model_fields_set
    else:
        defaults, said = {}, set()
    names = defaults or type(given).__dataclass_fields__
    pairs = [(name, getattr(given, name)) for name in names]
    return [
        (name, value)
        for name, value in pairs
        if value is not None or defaults.get(name, ...) is not None or name in said
    ]


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
