"""What must hold of a typed state and of its checkpoints, looked at on demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ropewalk.errors import InvalidInput, MissingContent, UnknownField
from ropewalk.state._typed._agent_state import AgentState
from ropewalk.state._typed._content import ContentRef, read_place
from ropewalk.state._typed._runtime import Runtime, runtime_for

if TYPE_CHECKING:
    from ropewalk.store import Store


def validate_state(state: AgentState, *, require_content: bool = False) -> None:
    """Raise unless a checkpoint of the state could be made now, with its own threshold.

    With `require_content`, also if the content of a reference is gone. What was changed
    in place is stored.
    """
    if not isinstance(state, AgentState):
        raise InvalidInput(f"validate_state takes an AgentState, not {state!r:.80}")
    checkpoint = state.to_checkpoint_dict()
    validate_checkpoint(
        type(state), checkpoint, runtime=state.runtime, require_content=require_content
    )


def validate_checkpoint(
    state_cls: type[AgentState],
    checkpoint: Mapping[str, Any],
    *,
    backend: Store | None = None,
    runtime: Runtime | None = None,
    inline_threshold_bytes: int | None = None,
    require_content: bool = False,
) -> None:
    """Raise unless a checkpoint is one of this class: known names, small values, references.

    The threshold is that of the runtime that is given, or of `get_config()`. Raises
    `UnknownField`, `InlineSizeExceeded`, `InvalidInput`, `UnresolvedReferenceError`,
    and with `require_content` `MissingContent`.
    """
    limits = runtime_for(runtime, backend, inline_threshold_bytes)
    if not isinstance(checkpoint, Mapping):
        raise InvalidInput(f"a checkpoint is a dict, not {checkpoint!r:.80}")
    fields = state_cls.fields()
    for name, value in checkpoint.items():
        if name not in fields:
            raise UnknownField(
                f"{state_cls.__qualname__} has no field {name!r:.80}; it has {', '.join(fields)}"
            )
        if fields[name].is_externalized:
            _validate_reference(read_place(name, value), limits, require_content)
        else:
            limits.inline_copy(name, value)


def _validate_reference(ref: ContentRef, limits: Runtime, require_content: bool) -> None:
    ref.expect_answer(limits.backend)
    if require_content and limits.backend.missing([ref.id]):
        raise MissingContent(ref.hash, [ref.id])
