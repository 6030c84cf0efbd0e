"""The state as a node gets it: a dict that loads an externalized value when it is read."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Final

from ropewalk.adapters._base import Hydrated
from ropewalk.state import ContentRef
from ropewalk.state.content_ref import checkpoint_form, read_place
from ropewalk.store import Store

_NOTHING: Final = object()


class Reference(dict[str, Any]):
    """The dict that stands in checkpoints for a value, known as ours while the program runs.

    The type says that an adapter or a channel made it, and that it is nobody's text.
    """

    __slots__ = ()


class GraphState(dict[str, Any]):
    """The state of a graph: externalized values are loaded when they are read, once.

    It is a dict of its own, as LangGraph's nodes get one: what is assigned here is no
    update until a node returns it. What was never read is returned without being loaded.
    A field that has no value yet reads as its default, if it has one.
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
        # With an `__iter__` of its own, dict(state) and {**state} ask `__getitem__`, too.
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
        """What an update goes on from, so that only what changed is stored."""
        return self._view

    def raw(self, name: str) -> Any:
        """What is there, without loading it: a `Reference` where nobody read the value."""
        return super().__getitem__(name)

    # Changing and copying: what a dict does by itself would see references.

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
    """The items of a mapping, with nothing loaded that is in this store, or in any."""
    if isinstance(values, GraphState) and store in (None, values.view.runtime.backend):
        return [(name, values.raw(name)) for name in values]
    return list(values.items())
