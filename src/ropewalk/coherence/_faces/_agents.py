"""The methods of `CoherenceCore` that are about agents, and what all the others ask first."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ropewalk.errors import InvalidInput, StoreClosed
from ropewalk.store.asynchronous import Closes, twin

if TYPE_CHECKING:
    from ropewalk.coherence._authorities._authority import Authority
    from ropewalk.coherence._client import Client
    from ropewalk.coherence._grants._granting import Granting
    from ropewalk.coherence._grants._grants import Grants
    from ropewalk.coherence._outages._degrading import Degrading
    from ropewalk.coherence._protocol import Directory, State

P = ParamSpec("P")
R = TypeVar("R")


class Agents(Closes):
    """The agents that work through one client."""

    name: str
    _client: Client
    _authority: Authority
    _directory: Directory
    _granting: Granting
    _grants: Grants
    _degrading: Degrading | None
    _agents: set[str]
    _closed: bool

    def register_agent(self, agent_name: str, now_tick: int | None = None) -> str:
        """Make an agent known, and begin it afresh; its name. Not needed before it works."""
        self._expect_agent(agent_name)
        self._granting.begin_afresh(agent_name, now_tick)
        return agent_name

    def unregister_agent(self, agent_name: str) -> None:
        """Forget an agent that is done: what it had, and what it saw."""
        self._check_open()
        self._granting.begin_afresh(agent_name, None)
        self._grants.forget(agent_name)
        self._agents.discard(agent_name)

    def agents(self) -> list[str]:
        """The names of the agents that have worked through this object, sorted."""
        return sorted(self._agents | set(self._directory.agents()))

    def state(self, agent_name: str, artifact: str) -> State:
        """The state of an agent at an artifact."""
        return self._directory.state(agent_name, artifact, self._client.clock())

    # What is asked before anything is done.

    def _expect_agent(self, agent: str) -> None:
        """Called by every operation of an agent: it is a sign of life."""
        self._check_open()
        if agent in self._agents:
            if self._grants.held:
                self._grants.beat(agent)
            return
        if not isinstance(agent, str) or agent == "" or not _is_text(agent):
            raise InvalidInput(f"an agent is a name, not {agent!r:.80}")
        self._agents.add(agent)

    def _expect_artifact(self, artifact: str) -> None:
        if not isinstance(artifact, str) or artifact == "" or not _is_text(artifact):
            raise InvalidInput(f"an artifact is a name, not {artifact!r:.80}")

    def _expect_engine(self, what: str) -> None:
        if self._degrading is not None:
            self._degrading.expect_engine(what)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(
                f"the artifacts {self.name!r:.80} were closed: make another CoherenceCore"
            )


A = TypeVar("A", bound=Agents)


def near_twin(
    method: Callable[Concatenate[A, P], R],
) -> Callable[Concatenate[A, P], Coroutine[Any, Any, R]]:
    """The asynchronous twin of a method that never waits where the authority is in memory."""
    far = twin(method)

    @wraps(far)
    async def run(self: A, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._authority.is_local:
            return method(self, *args, **kwargs)
        return await far(self, *args, **kwargs)

    return run


def _is_text(name: str) -> bool:
    """Whether it can be written down: half of a character, a lone surrogate, cannot."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
