"""Channels that hold references: nothing written to them puts a payload into a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from langgraph.channels import BinaryOperatorAggregate, EphemeralValue, LastValue
from langgraph.errors import EmptyChannelError

from ropewalk.adapters.langgraph.typed.state import Reference
from ropewalk.state import StateField

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph.typed.adapter import LangGraphAdapter

C = TypeVar("C", bound="_Kept")

MISSING: Final = LastValue(Any).value
"""The content of an empty LangGraph channel."""


class _Kept:
    """The base of the channels of externalized fields, which hold a `Reference`."""

    adapter: LangGraphAdapter
    field: StateField
    key: str
    value: Any

    def checkpoint(self) -> Any:
        return dict(self.value) if isinstance(self.value, Reference) else self.value

    def get(self) -> Any:
        if self.value is MISSING:
            raise EmptyChannelError
        return self.value

    def copy(self: C) -> C:
        made = type(self)(self.adapter, self.field, self.key)  # type: ignore[call-arg]
        made.value = self.value
        return made

    def from_checkpoint(self: C, checkpoint: Any) -> C:
        made = type(self)(self.adapter, self.field, self.key)  # type: ignore[call-arg]
        if checkpoint is not MISSING:
            # A thread older than the field's externalization contains the value itself.
            made.value = self.adapter.kept(self.field, checkpoint)
        return made


class ExternalizedValue(_Kept, LastValue[Any]):
    """The last value of an externalized field; one write per step, as in LangGraph."""

    def __init__(self, adapter: LangGraphAdapter, field: StateField, key: str = "") -> None:
        super().__init__(field.type, key)
        self.adapter, self.field = adapter, field

    def update(self, values: Sequence[Any]) -> bool:
        changed: bool = super().update(values)
        if changed:
            self.value = self.adapter.written(self.field, self.value)
        return changed


class ExternalizedAggregate(_Kept, BinaryOperatorAggregate[Any]):
    """An externalized field with a reducer, which works on values."""

    def __init__(self, adapter: LangGraphAdapter, field: StateField, key: str = "") -> None:
        super().__init__(object, field.reducer)
        self.typ, self.key, self.value = field.type, key, MISSING
        self.adapter, self.field = adapter, field

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExternalizedAggregate) and other.operator is self.operator

    __hash__ = None  # type: ignore[assignment]

    def update(self, values: Sequence[Any]) -> bool:
        if not values:
            return False
        left = None if self.value is MISSING else self.value
        self.value = self.adapter.folded(self.field, left, list(values))
        return True

    def is_available(self) -> bool:
        return self.value is not MISSING


class InlineAggregate(BinaryOperatorAggregate[Any]):
    """An inline field with a reducer; the result is checked against the threshold."""

    def __init__(
        self, typ: Any, operator: Callable[[Any, Any], Any], check: Callable[[Any], None]
    ) -> None:
        super().__init__(typ, operator)
        self.check = check

    def copy(self) -> InlineAggregate:
        made = InlineAggregate(self.typ, self.operator, self.check)
        made.key, made.value = self.key, self.value
        return made

    def from_checkpoint(self, checkpoint: Any) -> InlineAggregate:
        made = InlineAggregate(self.typ, self.operator, self.check)
        made.key = self.key
        # LangGraph's channel can read what threads stored before the field was declared this way.
        made.value = (
            BinaryOperatorAggregate(self.typ, self.operator).from_checkpoint(checkpoint).value
        )
        return made

    def update(self, values: Sequence[Any]) -> bool:
        changed: bool = super().update(values)
        if changed:
            self.check(self.value)
        return changed


class InputValue(EphemeralValue[Any]):
    """The input of a graph, which LangGraph checkpoints whole before any node has run."""

    value: Any

    def __init__(self, adapter: LangGraphAdapter, typ: Any, guard: bool = True) -> None:
        super().__init__(typ, guard)
        self.adapter = adapter

    def copy(self) -> InputValue:
        made = InputValue(self.adapter, self.typ, self.guard)
        made.key, made.value = self.key, self.value
        return made

    def from_checkpoint(self, checkpoint: Any) -> InputValue:
        made = InputValue(self.adapter, self.typ, self.guard)
        made.key = self.key
        if checkpoint is not MISSING:
            made.value = checkpoint
        return made

    def update(self, values: Sequence[Any]) -> bool:
        changed: bool = super().update(values)
        if changed and self.value is not MISSING:
            self.value = self.adapter.given(self.value)
        return changed
