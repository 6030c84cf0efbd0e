"""Typed state of a deep agent, for any checkpointer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, get_type_hints

from deepagents import create_deep_agent
from deepagents.graph import DeepAgentState
from langchain.agents.middleware.types import AgentMiddleware

from ropewalk.adapters.langgraph import LangGraphAdapter

if TYPE_CHECKING:
    from langchain.agents.middleware.types import ToolCallRequest


class DeepAgentsAdapter(LangGraphAdapter):
    """Adds a typed state to a deep agent: whatever the checkpointer, its checkpoints keep
    references in the places of `Externalized` fields, and the store `backend` gets the values
    when a node or a tool returns them.
    """

    def create_deep_agent(self, *arguments: Any, **options: Any) -> Any:
        """A deep agent with this state; takes what `create_deep_agent` of Deep Agents does.

        Tools and middleware read externalized values like any other, and these are loaded when
        somebody looks at them.
        """
        middleware = [Hydration(self), *options.pop("middleware", ())]
        agent = create_deep_agent(
            *arguments, **options, middleware=middleware, state_schema=self.schema()
        )
        made = self.compile(
            agent.builder,
            checkpointer=agent.checkpointer,
            store=agent.store,
            cache=agent.cache,
            name=agent.name,
            debug=agent.debug,
        )
        return made.with_config(agent.config)

    def _made_schema(self) -> type:
        hints = get_type_hints(DeepAgentState, include_extras=True)
        fields = get_type_hints(super()._made_schema(), include_extras=True)
        made: type = TypedDict(self.state_cls.__name__, {**hints, **fields}, total=False)  # type: ignore[misc]
        return made


class Hydration(AgentMiddleware[Any, Any, Any]):
    """Gives tools the values of a typed state, in the places of references."""

    def __init__(self, adapter: LangGraphAdapter) -> None:
        super().__init__()
        self._adapter = adapter

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """Call a tool with the state's values."""
        return handler(self._hydrated(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """The asynchronous twin of `wrap_tool_call`."""
        return await handler(self._hydrated(request))

    def _hydrated(self, request: ToolCallRequest) -> ToolCallRequest:
        state = self._adapter.hydrate(request.state)
        return replace(request, state=state, runtime=replace(request.runtime, state=state))
