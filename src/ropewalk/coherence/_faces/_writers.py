"""The methods of `CoherenceCore` that write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ropewalk.coherence._content import Content
from ropewalk.coherence._faces._agents import Agents, near_twin
from ropewalk.coherence._grants._waiting import edited
from ropewalk.coherence._protocol import Base
from ropewalk.coherence._wishes import EDIT_SECONDS, Edit, Proposed, expect_change
from ropewalk.errors import InvalidInput, VersionConflict
from ropewalk.store._checks import expect, expect_timeout, expect_whole
from ropewalk.tree import ABSENT

if TYPE_CHECKING:
    from ropewalk.codec import Codec
    from ropewalk.coherence._artifact import Artifact
    from ropewalk.coherence._outages._degrading import Degrading
    from ropewalk.coherence._writing import Writing


class Writers(Agents):
    """Agents that write artifacts."""

    _codec: Codec
    _writes: Writing | Degrading

    def register_artifact(
        self,
        name: str,
        content: Any,
        *,
        agent_name: str = "",
        size_tokens: int | None = None,
        exist_ok: bool = False,
    ) -> str:
        """Write the first version of an artifact; its name.

        `VersionConflict` if it is there, unless `exist_ok`: then it stays as it is.
        `size_tokens` may be said, as elsewhere; nothing counts tokens yet.
        """
        self._check_open()
        if size_tokens is not None:
            expect_whole(size_tokens, 0, "size_tokens")
        self._expect_artifact(name)
        try:
            self._writes.register(agent_name, name, Content.of(content, self._codec))
        except VersionConflict as conflict:
            if not exist_ok:
                raise conflict.advising(
                    "change it with `edit`, or register it with exist_ok=True to take it as it is"
                ) from None
        return name

    def write(
        self,
        agent_name: str,
        artifact: str,
        value: Any,
        *,
        if_version: int | None = None,
        now_tick: int | None = None,
    ) -> Artifact:
        """Make a value the newest version of an artifact, and make the artifact if need be.

        With `if_version` exactly this value takes the place of exactly that version (0: of
        none), or `VersionConflict` is raised. Without it, what others wrote since this agent
        last read or wrote the artifact is merged in, and the version that is given holds both.
        Where both changed the same place, `VersionConflict` is raised if the agent has read it
        since it last wrote; if it has only written, its value replaces what is there.
        """
        if self._closed or agent_name not in self._agents:
            self._expect_agent(agent_name)
        self._expect_artifact(artifact)
        _check_version(if_version)
        if now_tick is not None or self._grants.held:
            self._grants.beat(agent_name, now_tick)
        proposed = Proposed(Content.of(value, self._codec), if_version)
        made = self._writes.write(agent_name, {artifact: proposed}, "write")[artifact]
        assert made is not None
        return made

    def edit(
        self,
        agent_name: str,
        artifact: str,
        change: Callable[[Any], Any],
        *,
        default: Any = ABSENT,
        timeout: float | None = EDIT_SECONDS,
    ) -> Artifact:
        """Change an artifact with a function of its value, whatever others do meanwhile.

        The function gives the new value; if it gives None, the one that it was handed, which
        it may have changed, is taken. If others were faster, both changes are merged; if that
        cannot be, or `on_conflict` is not "merge", the function is called again with what is
        newest: it must not do anything else. `default` is what it gets where there is no
        artifact; without one that raises `NotFound`. An artifact that another agent holds is
        waited for, `timeout` seconds at most. Who lost the race to others for as long, again
        and again, gets `VersionConflict`.
        """
        self._expect_agent(agent_name)
        self._expect_artifact(artifact)
        expect_change(change)
        expect_timeout(timeout)
        made = self._writes.edit(agent_name, artifact, Edit(change, default, timeout))
        self._directory.read(agent_name, artifact, made._version)
        return made

    async def aedit(
        self,
        agent_name: str,
        artifact: str,
        change: Callable[[Any], Any],
        *,
        default: Any = ABSENT,
        timeout: float | None = EDIT_SECONDS,  # noqa: ASYNC109 - as its twin
    ) -> Artifact:
        """The asynchronous twin of `edit`; no thread waits for who holds the artifact."""
        expect_change(change)

        def edit(change: Callable[[Any], Any]) -> Artifact:
            return self.edit(agent_name, artifact, change, default=default, timeout=0)

        return await edited(self._threads, edit, change, timeout)

    def publish(
        self,
        agent_name: str,
        values: Mapping[str, Any],
        *,
        if_versions: Mapping[str, int] | None = None,
        since: Mapping[str, Artifact] | None = None,
    ) -> dict[str, Artifact]:
        """New versions of several artifacts, at one moment: all or none. See `write`.

        The value `ropewalk.tree.ABSENT` takes an artifact away, as `delete` does.

        `since` names what some values were made from, for an agent that does several things
        at once: what others wrote since is merged in, and not only what they wrote since the
        agent last saw an artifact.
        """
        bases = {name: Base(one._version, True) for name, one in (since or {}).items()}
        return self._publish(agent_name, values, if_versions or {}, bases)

    def _publish(
        self,
        agent_name: str,
        values: Mapping[str, Any],
        versions: Mapping[str, int],
        bases: Mapping[str, Base],
    ) -> dict[str, Artifact]:
        self._expect_agent(agent_name)
        expect(isinstance(values, Mapping), "what is published is a dict by artifact", values)
        _check_versions(versions, values)
        proposed = {}
        for artifact, value in values.items():
            self._expect_artifact(artifact)
            content = None if value is ABSENT else Content.of(value, self._codec)
            if content is None and versions.get(artifact) == 0:
                raise InvalidInput(
                    f"artifact {artifact!r:.80} cannot be taken away where there is none: leave it "
                    "out, or give the version that is to go"
                )
            proposed[artifact] = Proposed(content, versions.get(artifact), bases.get(artifact))
        made = self._writes.write(agent_name, proposed, "publish")
        return {name: one for name, one in made.items() if one is not None}

    def delete(self, agent_name: str, artifact: str, *, if_version: int | None = None) -> bool:
        """Take an artifact away; False if there was none. In a store its history stays.

        If it is written again, its versions go on from where they were.
        """
        self._expect_agent(agent_name)
        self._expect_artifact(artifact)
        _check_version(if_version)
        return self._writes.delete(agent_name, artifact, if_version)

    # The asynchronous face.

    aregister_artifact = near_twin(register_artifact)
    awrite = near_twin(write)
    apublish = near_twin(publish)
    adelete = near_twin(delete)


def _check_version(given: int | None) -> None:
    if given is not None and (type(given) is not int or given < 0):
        raise InvalidInput(f"if_version is a whole number from 0 on, not {given!r:.80}")


def _check_versions(expected: Mapping[str, int], values: Mapping[str, Any]) -> None:
    if unknown := expected.keys() - values.keys():
        raise InvalidInput(f"if_versions names what is not published: {sorted(unknown)}")
    for version in expected.values():
        _check_version(version)
