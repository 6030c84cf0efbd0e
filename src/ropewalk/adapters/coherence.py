"""Fresh artifacts before an agent's step and one commit after it, for any framework."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ropewalk.coherence import Artifact, CoherenceCore
from ropewalk.coherence.protocol import Base, Version
from ropewalk.coherence.timers import RetrySchedule
from ropewalk.coherence.write_path import Proposal
from ropewalk.errors import ArtifactHeld, InvalidInput, Unavailable
from ropewalk.store import Store
from ropewalk.store.asynchronous import Closes, Threads, twin
from ropewalk.store.validation import expect
from ropewalk.tree import ABSENT

_HELD_SECONDS: Final = 60.0

Writes: TypeAlias = str | Iterable[str] | Callable[[Any], Mapping[str, Any]] | None
"""Which artifacts an output becomes: one, some of its fields, or the result of a function."""


class BaseCoherenceAdapter(Closes):
    """Gives agents fresh artifacts before they act, and commits their changes.

    Takes the arguments of `CoherenceCore` (`strategy_name` is an alias of `strategy`), or an
    existing `core`, which its owner closes. A commit is all or nothing. It is checked against the
    versions the agent was given, and merged or refused with `VersionConflict`. Each step counts as
    a heartbeat. Times are wall-clock times; `now_tick` is for callers that run
    `core.enforce_stable_grant_timeouts(current_tick=...)` themselves.
    """

    def __init__(
        self,
        store: Store | str | None = None,
        *,
        core: CoherenceCore | None = None,
        strategy_name: str | None = None,
        **options: Any,
    ) -> None:
        if strategy_name is not None:
            if "strategy" in options:
                raise InvalidInput("strategy= and strategy_name= are the same: give one of them")
            options["strategy"] = strategy_name
        expect(core is None or isinstance(core, CoherenceCore), "core= is a CoherenceCore", core)
        if core is not None and (store is not None or options):
            raise InvalidInput(
                f"core= brings its own store and settings: leave out "
                f"{', '.join(options) or 'the store'}, or leave out core="
            )
        self.core = CoherenceCore(store, **options) if core is None else core
        self._owns_core = core is None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.core!r}>"

    def register_agent(self, name: str, now_tick: int | None = None) -> str:
        """Register an agent; otherwise its first step does."""
        return self.core.register_agent(name, now_tick)

    def register_artifact(
        self,
        *,
        name: str,
        content: Any,
        size_tokens: int | None = None,
        exist_ok: bool = False,
    ) -> str:
        """Share a new artifact, at version 1.

        Raises `VersionConflict` if the name is taken, unless `exist_ok`: then the existing
        artifact stays.
        """
        return self.core.register_artifact(
            name, content, size_tokens=size_tokens, exist_ok=exist_ok
        )

    def heartbeat(self, agent_name: str, now_tick: int | None = None) -> None:
        """Signal that an agent is alive, so that its grants are not revoked."""
        self.core.heartbeat(agent_name, now_tick)

    def recover(self, agent_name: str, now_tick: int | None = None) -> None:
        """Reset an agent after a restart: nothing it cached before is served again."""
        self.core.recover(agent_name, now_tick)

    def close(self) -> None:
        """Close the core if this adapter made it."""
        if self._owns_core:
            self.core.close()

    @property
    def _threads(self) -> Threads:
        return self.core.threads

    aregister_agent = twin(register_agent)
    aregister_artifact = twin(register_artifact)
    aheartbeat = twin(heartbeat)
    arecover = twin(recover)

    # Shared by the methods with a framework's own names.

    def _given(
        self, agent_name: str, names: Iterable[str], now_tick: int | None = None
    ) -> dict[str, Artifact]:
        """Artifacts as an agent gets them: one consistent snapshot."""
        if now_tick is not None:
            self.core.heartbeat(agent_name, now_tick)
        return self.core.snapshot(agent_name, names_of(names, "artifact_ids"))

    def _committed(
        self, agent_name: str, writes: Mapping[str, Any], now_tick: int | None = None
    ) -> dict[str, int]:
        """Commit an agent's changes, checked against what it last saw; returns the versions."""
        if now_tick is not None:
            self.core.heartbeat(agent_name, now_tick)
        return _versions(self.core.publish(agent_name, writes)) if writes else {}

    def _turn(self, agent_name: str, reads: list[str], writes: Writes = None) -> Turn:
        # Before the reads: writes of others in between are then detected as conflicts.
        newest = _newest(self.core, reads, writes)
        return Turn(self.core, agent_name, self._given(agent_name, reads), newest)

    _aturn = twin(_turn)


@dataclass(frozen=True)
class Turn:
    """One step of an agent: the artifacts it was given, and the versions when it began.

    Its commit is checked against both. One agent may take several steps at once. Each turn has its
    own versions, whereas the core knows only the newest that the agent has seen; what an agent saw
    in an earlier step does not count here.
    """

    core: CoherenceCore
    agent_name: str
    artifacts: Mapping[str, Artifact]
    newest: Mapping[str, Version] | None
    """Versions of the other artifacts it may write; None if the engine was down."""

    @property
    def _threads(self) -> Threads:
        return self.core.threads

    def values(self) -> dict[str, Any]:
        """The values it was given."""
        return contents_of(self.artifacts)

    def text(self) -> str:
        """The artifacts it was given, as text for a prompt."""
        return rendered(self.artifacts)

    def commit(self, writes: Mapping[str, Any]) -> dict[str, int]:
        """Commit the result of the step, all or nothing; returns the new versions.

        Waits up to a minute for an artifact that another agent holds, because repeating a step
        costs more. Raises `VersionConflict` if others changed it in between and the changes cannot
        be merged.
        """
        schedule = RetrySchedule(_HELD_SECONDS, time.monotonic)
        while True:
            try:
                return self._commit_now(writes)
            except ArtifactHeld:
                pause = schedule.pause()
                if pause is None:
                    raise
            time.sleep(pause)

    async def acommit(self, writes: Mapping[str, Any]) -> dict[str, int]:
        """The same from an event loop, without blocking a thread."""
        schedule = RetrySchedule(_HELD_SECONDS, time.monotonic)
        while True:
            try:
                return await self._acommit_now(writes)
            except ArtifactHeld:
                pause = schedule.pause()
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    def _commit_now(self, writes: Mapping[str, Any]) -> dict[str, int]:
        if not writes:
            return {}
        # Whatever it wrote without reading was based on the versions when the step began.
        began = {**(self.newest or {}), **{n: one.origin for n, one in self.artifacts.items()}}
        # If these are unknown, or the strategy is last-write-wins, it may replace any version.
        may_replace = self.newest is None or self.core.on_conflict == "overwrite"
        proposed = {}
        for name, value in writes.items():
            if name in began:
                proposed[name] = Proposal(value, base=Base(began[name], True))
            else:
                proposed[name] = Proposal(value, None if may_replace or value is ABSENT else 0)
        return _versions(self.core.propose(self.agent_name, proposed))

    _acommit_now = twin(_commit_now)


def names_of(given: Any, field: str) -> list[str]:
    """Names of artifacts as a list; a single name is not taken for its letters."""
    what = f"{field} is a list of names of artifacts"
    expect(isinstance(given, Iterable), what, given)
    names = [given] if isinstance(given, str) else list(given)
    expect(all(isinstance(name, str) and name != "" for name in names), what, given)
    return names


def writes_of(given: Any) -> Writes:
    """Validate what an output becomes."""
    if given is None or callable(given):
        return given  # type: ignore[no-any-return]
    what = "writes is the name of an artifact, a list of names, or a function of the output"
    expect(isinstance(given, Iterable), what, given)
    names = names_of(given, "writes")
    return names[0] if isinstance(given, str) else names


def agent_name_of(given: Any, what: str = "agent_name is the name of an agent") -> str:
    """Validate the name of an agent."""
    expect(isinstance(given, str) and given != "", what, given)
    return str(given)


def _newest(core: CoherenceCore, reads: list[str], writes: Writes) -> dict[str, Version] | None:
    """The current versions of artifacts a step may write and does not read; None while degraded."""
    try:
        if callable(writes):
            return core.versions()  # Which of them it will write is not known yet.
        unread = set(names_of(writes or (), "writes")).difference(reads)
        return core.newest(unread) if unread else {}
    except Unavailable:
        if core.on_error == "degrade":
            return None
        raise


def context_of(artifacts: Mapping[str, Artifact]) -> dict[str, dict[str, Any]]:
    """Artifacts in the form a node gets: `version`, `content` and `state` of each."""
    return {
        name: {"version": one.version, "content": one.value, "state": one.state}
        for name, one in artifacts.items()
    }


def contents_of(artifacts: Mapping[str, Artifact]) -> dict[str, Any]:
    """Artifacts as their contents."""
    return {name: one.value for name, one in artifacts.items()}


def rendered(artifacts: Mapping[str, Artifact]) -> str:
    """Artifacts as text for a prompt, each with its name and version."""
    parts = [f"## {name} ({_age(one)})\n{_said(one.value)}" for name, one in artifacts.items()]
    return "\n\n".join(["# Shared artifacts, as they are now", *parts])


def written(writes: Writes, output: Any, value: Callable[[], Any]) -> dict[str, Any]:
    """What to commit of an output; `value` returns the output as a plain value."""
    if writes is None:
        return {}
    if callable(writes):
        made = writes(output)
        if not isinstance(made, Mapping):
            raise InvalidInput(
                f"the function in writes= gives a mapping from artifact to value, not {made!r:.80}"
            )
        return dict(made)
    if isinstance(writes, str):
        return {writes: value()}
    names, parts = list(writes), value()
    if not isinstance(parts, Mapping):
        raise InvalidInput(
            f"writes= names parts of an output ({', '.join(names)}), and the output is no mapping "
            f"but {parts!r:.80}. Name one artifact for all of it, or give a function."
        )
    return {name: parts[name] for name in names if name in parts}


def _age(artifact: Artifact) -> str:
    known = ", the last one known: there may be a newer one" if artifact.degraded else ""
    return f"version {artifact.version}{known}"


def _said(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, indent=2)
    except (TypeError, ValueError):
        return repr(value)


def _versions(artifacts: Mapping[str, Artifact]) -> dict[str, int]:
    return {name: one.version for name, one in artifacts.items()}
