"""Threads that know which version of the files they have, so that a fork has these files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from langchain.agents.middleware.types import AgentMiddleware, AgentState, PrivateStateAttr
from langchain_core.messages import ToolMessage
from langgraph.types import Command

from ropewalk.adapters.deepagents.backend import FilesVersion, RopewalkBackend
from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from langchain.agents.middleware.types import ToolCallRequest
    from langchain_core.runnables import RunnableConfig
    from langgraph.pregel import Pregel
    from langgraph.runtime import Runtime

CHANNEL = "files_version"


def later(one: FilesVersion | None, other: FilesVersion | None) -> FilesVersion | None:
    """Of the versions that parallel tools leave, the last."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda version: version["number"])


class FilesState(AgentState[Any]):
    """What `FileVersions` adds to a state."""

    files_version: Annotated[FilesVersion | None, PrivateStateAttr, later]


def thread_branch(config: RunnableConfig) -> str:
    """The branch of a thread's files: `RopewalkBackend(store, branch=thread_branch)`."""
    thread = config.get("configurable", {}).get("thread_id")
    if thread is None:
        raise InvalidInput("files of a thread need one: the config has no thread_id")
    return f"thread/{thread}"


class FileVersions(AgentMiddleware[FilesState, Any, Any]):
    """Notes in each checkpoint which version of a `RopewalkBackend`'s files belongs to it, when a
    run begins and after each call of a tool; `fork_thread` needs it.
    """

    state_schema = FilesState

    def __init__(self, backend: RopewalkBackend) -> None:
        super().__init__()
        self.backend = backend

    def before_agent(self, state: FilesState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Note the version with which a run begins."""
        return _changed(state, self.backend.numbered_version())

    async def abefore_agent(
        self, state: FilesState, runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """The asynchronous twin of `before_agent`."""
        return _changed(state, await self.backend.anumbered_version())

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Note the version after a call."""
        return _noted(request, handler(request), self.backend.numbered_version())

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """The asynchronous twin of `wrap_tool_call`."""
        return _noted(request, await handler(request), await self.backend.anumbered_version())


def _changed(state: Mapping[str, Any], now: FilesVersion) -> dict[str, Any] | None:
    noted: FilesVersion | None = state.get(CHANNEL)
    return None if noted and noted["version"] == now["version"] else {CHANNEL: now}


def _noted(
    request: ToolCallRequest, result: ToolMessage | Command[Any], now: FilesVersion
) -> ToolMessage | Command[Any]:
    update = _changed(request.state, now)
    if update is None:
        return result
    if isinstance(result, ToolMessage):
        return Command(update={"messages": [result], **update})
    if isinstance(result.update, dict) and result.graph is None:
        return replace(result, update={**result.update, **update})
    return result


def fork_thread(
    agent: Pregel, config: RunnableConfig, thread_id: str, backend: RopewalkBackend | None = None
) -> RunnableConfig:
    """A new thread that begins at a checkpoint of another one; returns its config.

    `config` names the checkpoint, as those of `agent.get_state_history` do, and without a
    `checkpoint_id` the newest. The two threads share all that they have in common. With a
    `backend` whose branches are those of threads, the new thread has the files as they were; the
    agent needs `FileVersions(backend)` for that.

    Raises `NotFound` if there is no such checkpoint, and `InvalidInput` if the agent has no
    `RopewalkSaver`, or the checkpoint no version of the files.
    """
    saver = agent.checkpointer
    if not isinstance(saver, RopewalkSaver):
        raise InvalidInput("fork_thread works on the threads of a RopewalkSaver: compile with one")
    state = agent.get_state(config)
    at = state.config.get("configurable", {})
    if state.created_at is None or "checkpoint_id" not in at:
        raise NotFound(f"there is no checkpoint at {config.get('configurable')!r:.200}")
    if next(saver.list({"configurable": {"thread_id": thread_id}}, limit=1), None) is not None:
        raise InvalidInput(f"there is a thread {thread_id!r:.80} already: choose another name")
    made: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    if backend is not None:
        noted: FilesVersion | None = state.values.get(CHANNEL)
        if noted is None:
            raise InvalidInput(
                "the checkpoint does not say which files belong to it: make the agent with "
                "middleware=[FileVersions(backend)]"
            )
        if noted["version"] is not None:
            backend.fork(backend.branch_of(made), noted["version"])
    saver.copy_thread(at["thread_id"], thread_id)
    saver.timeline(thread_id).rollback(to_checkpoint_id=at["checkpoint_id"])
    return made
