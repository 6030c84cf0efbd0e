"""A runtime whose workflows go on after their process was killed.

Each run is a timeline, named by the run's id. Its value has two parts: `state`, what is in
`ctx.store`, and `run`, what the framework needs to go on: its broker, with the events that are on
their way. A commit takes both, so that a step is either there with what it wrote, or not at all.
The journal of the run is the history of that timeline.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import uuid4

from workflows.context.context import Context
from workflows.context.serializers import BaseSerializer, JsonSerializer
from workflows.context.state_store import DictState, decode_state
from workflows.events import StopEvent, WorkflowFailedEvent
from workflows.plugins.basic import BasicRuntime
from workflows.runtime.control_loop import rebuild_state_from_ticks
from workflows.runtime.runtime_decorators import (
    BaseExternalRunAdapterDecorator,
    BaseInternalRunAdapterDecorator,
    BaseRuntimeDecorator,
)
from workflows.runtime.types.plugin import Runtime, SnapshottableAdapter, V2RuntimeCompatibilityShim
from workflows.runtime.types.results import StepWorkerFailed, StepWorkerResult
from workflows.runtime.types.ticks import (
    TickAddEvent,
    TickIdleCheck,
    TickPublishEvent,
    TickSessionStart,
    TickStepResult,
)

from ropewalk.codec import default_codec
from ropewalk.errors import ChangedMeanwhile, Conflict, InvalidInput, NotFound, NotStorable
from ropewalk.store.opening import store_of
from ropewalk.timeline import Checkpoint, Timeline

if TYPE_CHECKING:
    from workflows import Workflow
    from workflows.events import StartEvent
    from workflows.runtime.types.internal_state import BrokerState
    from workflows.runtime.types.plugin import ExternalRunAdapter, InternalRunAdapter
    from workflows.runtime.types.ticks import WorkflowTick

    from ropewalk.store import KVStore, Store

_Form: TypeAlias = Literal["tree", "text"]
"""What a workflow's serializer makes of a value: a tree of plain ones, or a string."""

_MEMORY: Final = "memory"
"""The key under which agents keep their memory in `ctx.store`."""
_MODEL: Final = "model"
"""Where the state of a workflow is that declares a class for it."""
_WITH_NEXT: Final = (TickIdleCheck, TickPublishEvent, TickSessionStart)
"""Ticks that are stored with the next one: a restored run makes them again."""
_START_FIELDS: Final = ("user_msg", "chat_history", "max_iterations")
"""What the serializer of an agent's start event reads, whether it was set or not."""


class RopewalkRuntime(BaseRuntimeDecorator):
    """Runs workflows, and commits where each is, with `ctx.store`, whenever a step has finished.

    The id of a run names its timeline: `workflow.run(..., run_id="trip-1")`. To go on with it,
    after a crash or with the next turn, `ctx = await runtime.restore(workflow, "trip-1")` and
    `workflow.run(ctx=ctx, run_id="trip-1")`. Steps that had not finished run again, no others.

    A run raises `Conflict` if there is another of its id, or if somebody else goes on with it.
    A store that the runtime opened itself is closed by `destroy`.
    """

    def __init__(self, store: Store | KVStore | str | PathLike[str]) -> None:
        self._basic = BasicRuntime()
        super().__init__(self._basic)
        self.store, self._owns_store = store_of(store)
        self._runs: weakref.WeakValueDictionary[str, _Run] = weakref.WeakValueDictionary()
        """The last run of each name, while somebody holds its context or handler."""
        self._sessions: weakref.WeakValueDictionary[str, _Run] = weakref.WeakValueDictionary()
        """The same by the names under which the inner runtime knows them, which occur once."""

    async def restore(self, workflow: Workflow, run_id: str, *, memory: Any = None) -> Context[Any]:
        """The context of a stored run, as its timeline has it.

        `memory` is the memory of an agent whose messages are in a chat store.
        Raises `NotFound` if no such run was stored.
        """
        run = _Run(run_id, self.store, memory=memory)
        value = await self.store._threads.run(run.load)
        state, about = value["state"], value["run"]
        if memory is None and about["memory"] is not None:
            raise InvalidInput(
                f"the messages of run {run_id!r} are in a chat store: restore it with memory="
                f"Memory.from_defaults(session_id={about['memory']!r}, chat_store=...)"
            )
        serializer = self.get_serializer(workflow)
        # The context holds the run, so that both live equally long.
        held = {"state_data": _loaded(state, about, serializer), "run": run}
        self._runs[run_id] = run
        return Context.from_dict(workflow, {**about["broker"], "state": held}, serializer)

    def run_workflow(
        self,
        run_id: str,
        workflow: Workflow,
        init_state: BrokerState,
        start_event: StartEvent | None = None,
        serialized_state: dict[str, Any] | None = None,
        serializer: BaseSerializer | None = None,
    ) -> ExternalRunAdapter:
        """Start a run, or go on with one, whose timeline has the name `run_id`."""
        serializer = serializer or self.get_serializer(workflow)
        restored: _Run | None = (serialized_state or {}).get("run")
        if restored is not None and restored.name != run_id:
            raise InvalidInput(
                f"the context was restored from run {restored.name!r}: go on with it by "
                f"workflow.run(ctx=ctx, run_id={restored.name!r}), or fork its timeline"
            )
        last = restored or (self._runs.get(run_id) if init_state.journal_seq else None)
        if last is not None and last.sequence != init_state.journal_seq:
            raise Conflict(f"run {run_id!r} went on since this context was made: restore it again")
        run = _Run(run_id, self.store) if last is None else last.next()
        if start_event is not None and type(start_event).__name__ == "AgentWorkflowStartEvent":
            for name in _START_FIELDS:
                if name not in start_event:
                    setattr(start_event, name, None)
        if serialized_state and run.memory is not None:
            # What the framework hands over is a copy of the memory without its messages.
            state = decode_state(serialized_state.get("state_data"), serializer)
            state[_MEMORY] = run.memory
            serialized_state = {"state_data": state}
        run.begin(self._basic, init_state, serializer)
        self._runs[run_id] = self._sessions[run.session] = run
        external = self._basic.run_workflow(
            run.session, workflow, init_state, start_event, serialized_state, serializer
        )
        return _ExternalRun(external, run)

    def get_internal_adapter(self, workflow: Workflow) -> InternalRunAdapter:
        """The adapter of the run that is current in this task."""
        internal = self._basic.get_internal_adapter(workflow)
        return _InternalRun(internal, self._sessions[internal.run_id])

    def get_external_adapter(self, run_id: str) -> ExternalRunAdapter:
        """The adapter of a run of this process, by the id that it was started with."""
        run = self._runs.get(run_id)
        if run is None or not run.session:
            raise NotFound(f"no run {run_id!r} was started here: restore it first")
        return _ExternalRun(self._basic.get_external_adapter(run.session), run)

    def registering(self) -> AbstractContextManager[Runtime]:
        """Workflows that are made in this block run here, also agents, which take no runtime."""
        # The inherited one would have them run in the inner runtime.
        block: AbstractContextManager[Runtime] = Runtime.registering(self)
        return block

    async def destroy(self) -> None:
        """Close the store, if this runtime opened it."""
        await super().destroy()
        if self._owns_store:
            self.store.close()


class _InternalRun(BaseInternalRunAdapterDecorator):
    """What the control loop of a run talks to."""

    def __init__(self, decorated: InternalRunAdapter, run: _Run) -> None:
        super().__init__(decorated)
        self._run = run

    @property
    def run_id(self) -> str:
        return self._run.name

    async def on_tick(self, tick: WorkflowTick) -> None:
        await super().on_tick(tick)
        try:
            await self._run.take(tick)
        except Exception as error:
            # Those who stream its events would wait for the end of this run for ever.
            await self.write_to_event_stream(
                WorkflowFailedEvent(step_name="(commit)", exception=error)
            )
            raise


class _ExternalRun(
    BaseExternalRunAdapterDecorator, SnapshottableAdapter, V2RuntimeCompatibilityShim
):
    """What the handler and the context of a run talk to."""

    _decorated: Any

    def __init__(self, decorated: ExternalRunAdapter, run: _Run) -> None:
        super().__init__(decorated)
        self._run = run

    @property
    def run_id(self) -> str:
        return self._run.name

    @property
    def init_state(self) -> BrokerState:
        state: BrokerState = self._decorated.init_state
        return state

    def replay(self) -> list[WorkflowTick]:
        ticks: list[WorkflowTick] = self._decorated.replay()
        return ticks

    def get_result_or_none(self) -> StopEvent | None:
        result: StopEvent | None = self._decorated.get_result_or_none()
        return result

    @property
    def is_running(self) -> bool:
        return bool(self._decorated.is_running)

    def abort(self) -> None:
        self._decorated.abort()


class _Run:
    """One session of a run: what is stored of it, and where its timeline is."""

    def __init__(
        self,
        name: str,
        store: Store,
        timeline: Timeline | None = None,
        head: Checkpoint | None = None,
        memory: Any = None,
    ) -> None:
        self.name, self._store = name, store
        self._timeline, self._head = timeline, head
        self.memory = memory
        self.session = ""
        self.sequence = 0
        """How many ticks the run has had, as the framework counts them."""
        self._forms: dict[str, _Form] = {}
        """Of parts of the state that cannot be stored as they are."""

    def load(self) -> Any:
        """Read the newest value of the timeline; raises `NotFound`."""
        if self.name not in Timeline.agents(self._store):
            raise NotFound(f"there is no run {self.name!r} to restore: start it with this run_id")
        self._timeline = Timeline(self.name, self._store)
        value = self._timeline.get_state()
        self._head = self._timeline.head
        if not isinstance(value, dict) or value.keys() != {"state", "run"}:
            raise InvalidInput(f"timeline {self.name!r} holds something else than a workflow's run")
        self._forms = dict(value["run"]["forms"])
        self.sequence = value["run"]["broker"]["journal_seq"]
        return value

    def next(self) -> _Run:
        """The session that goes on where this one is."""
        run = _Run(self.name, self._store, self._timeline, self._head, self.memory)
        run._forms = dict(self._forms)
        return run

    def begin(
        self, runtime: BasicRuntime, init_state: BrokerState, serializer: BaseSerializer
    ) -> None:
        """Set out from a state of the broker."""
        self.session = f"{self.name}/{uuid4().hex}"
        self._basic, self._serializer, self._broker = runtime, serializer, init_state
        self.sequence = init_state.journal_seq

    async def take(self, tick: WorkflowTick) -> None:
        """Follow a tick, and store where it leads, at once or with the next one."""
        self._broker = rebuild_state_from_ticks(self._broker, [tick], self.name)
        self.sequence = self._broker.journal_seq
        if isinstance(tick, _WITH_NEXT) or getattr(tick, "emission", None) is not None:
            return
        step, about = _description(tick)
        self._head = await self._save(step, about)

    async def _save(self, step: str, description: str) -> Checkpoint:
        """Commit what is there now.

        The framework replaces what is in `ctx.store` and never changes it, so it is taken while
        other steps run on. If one of them changes a value in place just then, a copy is taken.
        """
        run, value = self._store._threads.run, self._value()
        try:
            return await run(lambda: self._commit(value, step, description))
        except NotStorable:
            self._find_forms()
            value = self._value()
        except ChangedMeanwhile:
            value = default_codec.decode(default_codec.encode(value))
        return await run(lambda: self._commit(value, step, description))

    def _parts(self) -> tuple[dict[str, Any], bool]:
        """What is in `ctx.store`, by name, and whether it is a dict; without what is elsewhere."""
        state = self._basic.state_checkpoint(self.session).state
        if not isinstance(state, DictState):
            return {_MODEL: state}, False
        parts = dict(state.items())
        if getattr(parts.get(_MEMORY), "sql_store", None) is not None:
            self.memory = parts.pop(_MEMORY)
        return parts, True

    def _value(self) -> dict[str, Any]:
        parts, is_dict = self._parts()
        state = {
            name: _converted(name, part, self._forms.get(name), self._serializer)
            for name, part in parts.items()
        }
        run = {
            "broker": self._broker.to_serialized(self._serializer).model_dump(mode="json"),
            "is_dict": is_dict,
            "forms": dict(self._forms),
            "memory": None if self.memory is None else self.memory.session_id,
        }
        return {"state": state, "run": run}

    def _find_forms(self) -> None:
        """Find what cannot be stored as it is, and in which form it can."""
        for name, part in self._parts()[0].items():
            try:
                default_codec.encode(part)
            except NotStorable:
                self._forms[name] = _form(part, self._serializer)

    def _commit(self, value: Any, step: str, description: str) -> Checkpoint:
        if self._timeline is None:
            self._timeline = Timeline(self.name, self._store)
        if self._head is None and self._timeline.head is not None:
            raise Conflict(
                f"there is a run {self.name!r} already: go on with it by "
                "ctx = await runtime.restore(workflow, run_id), or choose another run_id"
            )
        return self._timeline.checkpoint(
            value, description=description, logic_step=step, expect=self._head
        )


def _form(value: Any, serializer: BaseSerializer) -> _Form:
    """Whether the serializer makes a tree of a value that can be stored, or only a string."""
    if not isinstance(serializer, JsonSerializer):
        return "text"
    try:
        json.dumps(serializer.serialize_value(value))
    except Exception:  # noqa: BLE001 - whatever a class of the user raises
        return "text"
    return "tree"


def _converted(name: str, value: Any, form: _Form | None, serializer: BaseSerializer) -> Any:
    if form is None:
        return value
    try:
        if form == "tree" and isinstance(serializer, JsonSerializer):
            return json.loads(json.dumps(serializer.serialize_value(value)))
        return serializer.serialize(value)
    except Exception as error:
        raise NotStorable(
            f"neither Ropewalk nor the workflow's serializer can: {error}", f"ctx.store[{name!r}]"
        ) from error


def _loaded(state: Mapping[str, Any], about: Mapping[str, Any], serializer: BaseSerializer) -> Any:
    """The model of a stored state."""
    parts = dict(state)
    for name, form in about["forms"].items():
        text = json.dumps(parts[name]) if form == "tree" else parts[name]
        parts[name] = serializer.deserialize(text)
    return DictState(_data=parts) if about["is_dict"] else parts[_MODEL]


def _description(tick: WorkflowTick) -> tuple[str, str]:
    """The step that a tick is of, and what happened, for people who read the log."""
    if isinstance(tick, TickStepResult):
        step, made = str(tick.step_id), []
        for result in tick.result:
            if isinstance(result, StepWorkerFailed):
                made.append(f"failed: {result.exception!r:.200}")
            elif isinstance(result, StepWorkerResult):
                made.append("None" if result.result is None else type(result.result).__name__)
        return step, f"{step}: {type(tick.event).__name__} -> {', '.join(made) or 'waits'}"
    if isinstance(tick, TickAddEvent):
        return "", f"received {type(tick.event).__name__}"
    return "", tick.type.replace("_", " ")
