"""The state a node gets, and the conversion of its result."""

from __future__ import annotations

from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from dataclasses import is_dataclass, replace
from typing import Any, Final, Protocol

from langgraph.types import Command, Overwrite, Send
from pydantic import BaseModel

from ropewalk.adapters.typed_state import Hydrated, Update
from ropewalk.state import AgentState, ContentRef
from ropewalk.state.content_ref import checkpoint_form, read_place
from ropewalk.store import Store

_NOTHING: Final = object()

Pairs = Sequence[tuple[str, Any]]
_OVERWRITE = "__overwrite__"


class Reference(dict[str, Any]):
    """The checkpoint form of a value, marked as ours while the program runs.

    The type proves that an adapter or a channel made it, and not user input.
    """

    __slots__ = ()


class GraphState(dict[str, Any]):
    """The state of a graph: externalized values are loaded on first read.

    It is a separate dict, as nodes of LangGraph get one: assigning here is not an update until a
    node returns it. Values that were never read are returned without being loaded. A field without
    a value reads as its default, if it has one.
    """

    __slots__ = ("_given", "_initial", "_view")

    def __init__(
        self,
        values: Mapping[str, Any],
        view: Hydrated,
        initial: Callable[[str], Any] | None = None,
    ) -> None:
        references = {
            name: Reference(checkpoint_form(read_place(name, raw)))
            for name, raw in raw_items(values)
            if view.ref(name) is not None
        }
        super().__init__({**dict(raw_items(values)), **references})
        self._view, self._given, self._initial = view, references, initial

    # Reading.

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return self._loaded(name, value) if type(value) is Reference else value

    def __missing__(self, name: str) -> Any:
        if self._initial is None:
            raise KeyError(name)
        value = self._initial(name)  # Raises KeyError if there is none.
        super().__setitem__(name, value)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def __iter__(self) -> Iterator[str]:
        # With a custom `__iter__`, dict(state) and {**state} use `__getitem__`, too.
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        return KeysView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return ValuesView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        return ItemsView(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return NotImplemented
        return dict(self.items()) == dict(other.items())

    __hash__ = None

    def __repr__(self) -> str:
        shown = {name: "..." if type(raw) is Reference else raw for name, raw in raw_items(self)}
        return f"GraphState({shown!r})"

    async def aload(self, *names: str) -> None:
        """Load these values, or all, off the event loop, so that reading them does not block."""
        wanted = names or tuple(self)
        await self._view.runtime.backend._threads.run(lambda: [self[name] for name in wanted])

    # References.

    def ref(self, name: str) -> ContentRef | None:
        """The reference that a field came with; None if it had none."""
        return self._view.ref(name)

    @property
    def view(self) -> Hydrated:
        """The base of an update, so that only changes are stored."""
        return self._view

    def raw(self, name: str) -> Any:
        """The stored form: a `Reference` if the value was not read."""
        return super().__getitem__(name)

    # Changing and copying: the methods of dict would see references.

    def pop(self, name: str, default: Any = _NOTHING) -> Any:
        if name not in self:
            if default is _NOTHING:
                raise KeyError(name)
            return default
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        if not self:
            raise KeyError("popitem(): dictionary is empty")
        name = list(self)[-1]
        return name, self.pop(name)

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def copy(self) -> dict[str, Any]:
        return self.__copy__()

    def __copy__(self) -> GraphState:
        made = GraphState({}, self._view, self._initial)
        made._given = self._given
        for name, raw in raw_items(self):
            dict.__setitem__(made, name, raw)
        return made

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, dict):
            return NotImplemented
        made = self.__copy__()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> Any:
        if not isinstance(other, dict):
            return NotImplemented
        return {**other, **self}

    def __reduce_ex__(self, protocol: object) -> Any:
        return dict, (dict(self.items()),)

    def _loaded(self, name: str, reference: Reference) -> Any:
        if self._given.get(name) is reference:
            value = self._view[name]
        else:  # Put here by hand: a reference of another field, or of another state.
            runtime = self._view.runtime
            value = read_place(name, reference).resolve(runtime.backend, codec=runtime.coding)
        super().__setitem__(name, value)
        return value


def raw_items(values: Mapping[str, Any], store: Store | None = None) -> list[tuple[str, Any]]:
    """The items of a mapping, without loading references to this store, or to any."""
    if isinstance(values, GraphState) and store in (None, values.view.runtime.backend):
        return [(name, values.raw(name)) for name in values]
    return list(values.items())


class Convert(Protocol):
    """Converts fields with values to fields with references to a store."""

    store: Store

    def __call__(self, pairs: Pairs) -> list[tuple[str, Any]]: ...


def converted(result: Any, convert: Convert) -> Any:
    """A result with references in place of externalized fields, whatever its shape.

    Handles what LangGraph accepts: a dict, an object with annotated fields, a `Command`, a `Send`,
    a list of these. Names of nodes, None and values of other shapes pass through.
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
    """Whether a result is a dict without any of these fields, so that nothing has to be stored."""
    return result is None or (isinstance(result, dict) and not any(one in result for one in names))


def overwritten(value: Any) -> tuple[bool, Any]:
    """Whether a value bypasses the reducer, and the value inside."""
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
    """Whether it has fields as attributes, in a form that LangGraph accepts."""
    return isinstance(given, BaseModel) or (is_dataclass(given) and not isinstance(given, type))


def _fields(given: Any, convert: Convert) -> Any:
    """The fields of such an object, as an update."""
    if isinstance(given, dict):
        return Update(convert(raw_items(given, convert.store)))
    if isinstance(given, AgentState):
        return Update(convert(_of_state(given)))
    if is_object(given):
        changed = _changed(given, convert)
        # An object is replaced only if something in it has to be stored.
        return Update({**dict(_of_object(given)), **changed}) if changed else given
    return given


def _argument(given: Any, convert: Convert) -> Any:
    """The argument of a `Send`: an object stays one, because the node expects that."""
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
    """The fields that LangGraph would take from an object: those that are set."""
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
