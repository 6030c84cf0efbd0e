"""`CoherenceCore`: many agents, shared artifacts, no stale reads, no lost updates."""

from __future__ import annotations

import hmac
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from os import PathLike
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    TypeVar,
    get_args,
    overload,
)
from uuid import uuid4

from ropewalk.codec import Classes, Codec
from ropewalk.codec.codec import codec_of
from ropewalk.coherence.authority import ArtifactChange, Authority, LocalAuthority, Watching
from ropewalk.coherence.bus import Bus
from ropewalk.coherence.conditional_read import Answer, Have, answer
from ropewalk.coherence.directory import Directory
from ropewalk.coherence.grants import Grants
from ropewalk.coherence.invalidation import abandon, connect
from ropewalk.coherence.leases import CrashRecoveryConfig
from ropewalk.coherence.logs import Logs, Places, Recorder
from ropewalk.coherence.outages import PATIENCE, DegradedMode, DegradedWrites, OnError
from ropewalk.coherence.protocol import Base, Content, ContentCache
from ropewalk.coherence.read_path import Client, ReadPath
from ropewalk.coherence.store_authority import StoreAuthority
from ropewalk.coherence.strategies import Bound, Strategy, check_seconds, strategy_for
from ropewalk.coherence.timers import Time, steady_clock
from ropewalk.coherence.write_path import (
    EDIT_SECONDS,
    Edit,
    OnConflict,
    PendingVersion,
    Proposal,
    WritePath,
    edit_async,
    expect_change,
)
from ropewalk.errors import (
    InvalidInput,
    MissingObjects,
    NotFound,
    StoreClosed,
    Unavailable,
    VersionConflict,
)
from ropewalk.history.merge import check_mergers
from ropewalk.store import Store
from ropewalk.store.asynchronous import Closes, Threads, twin
from ropewalk.store.forking import reset_after_fork
from ropewalk.store.opening import store_of
from ropewalk.store.retry import limit_retries
from ropewalk.store.validation import expect, expect_timeout, expect_whole
from ropewalk.tree import ABSENT, Mergers

if TYPE_CHECKING:
    from ropewalk.coherence.grants import Grant
    from ropewalk.coherence.history import ArtifactTimeline
    from ropewalk.coherence.leases import Reclaim
    from ropewalk.coherence.outages import KeptWrite, Reconciled
    from ropewalk.coherence.protocol import Artifact, Note, State, Version
    from ropewalk.store import KVStore

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound="CoherenceCore")

_CONTENT_BYTES: Final = 64 << 20
_LOCAL_THREADS: Final = 16


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


class CoherenceCore(Closes):
    """Artifacts that many agents share, each reading and writing under its own name.

    `store` is a Store, a path or URL; all who name the same store and the same `name` share
    their artifacts, in threads, processes and machines. Without a store they are in the memory
    of this process.

    What a read may give is said by the `strategy`: see `build_strategy` for its parameters,
    and `bound` for what it promises. A write is checked against the version that the agent
    saw. If others wrote since, both changes are merged, with `mergers` where both changed the
    same place; else it raises `VersionConflict` with nothing changed. `on_conflict` says
    otherwise.

    Safe to share between threads. Every method that asks the engine has an asynchronous twin:
    `aread` for `read`, and so on.
    """

    def __init__(  # noqa: PLR0913 - one for each thing to choose
        self,
        store: Store | KVStore | str | PathLike[str] | None = None,
        *,
        name: str = "shared",
        strategy: str | Strategy = "lazy",
        tick_seconds: float = 1.0,
        bus: Bus | Literal[False] | None = None,
        mergers: Mergers | None = None,
        on_conflict: OnConflict = "merge",
        crash_recovery: CrashRecoveryConfig | None = None,
        on_error: OnError = "strict",
        degraded_writes: DegradedWrites = "keep",
        state_log: Any = None,
        content_audit_log: Any = None,
        on_metric: Any = None,
        telemetry: Any = None,
        types: Iterable[type] = (),
        classes: Classes | None = None,
        codec: Codec | None = None,
        instance_id: str | None = None,
        clock: Callable[[], float] | Time = steady_clock,
        places: Places | None = None,
        **strategy_parameters: Any,
    ) -> None:
        self.strategy = strategy_for(CoherenceCore, strategy, tick_seconds, strategy_parameters)
        self.tick_seconds = check_seconds(tick_seconds, "tick_seconds")
        _check_choice("on_conflict", on_conflict, OnConflict)
        _check_choice("on_error", on_error, OnError)
        _check_choice("degraded_writes", degraded_writes, DegradedWrites)
        _check_names(name, instance_id)
        recovery = _recovery_of(crash_recovery, self.strategy, self.tick_seconds)
        self._codec = codec_of(codec, types, classes=classes)
        check_mergers(mergers, self._codec)
        self.name, self.instance_id = name, instance_id or uuid4().hex
        self._closed = False
        self._agents: set[str] = set()
        self._own_threads: Threads | None = None
        self._store: Store | None = None
        self._owns_store = False
        if store is not None:
            self._store, self._owns_store = store_of(store)
        time = clock if isinstance(clock, Time) else Time(clock)
        self._authority = _authority_of(self._store, name, self._codec, time)
        self._directory = Directory(follows=self.strategy.follows)
        logs = Logs(
            state_log,
            content_audit_log,
            on_metric,
            telemetry,
            self.instance_id,
            space=name,
            strategy=self.strategy.name,
            bound_seconds=self.bound.seconds,
            bound_reads=self.bound.reads,
            tick_seconds=self.tick_seconds,
        )
        self._client = Client(
            name,
            self.instance_id,
            self._authority,
            self._directory,
            ContentCache(_CONTENT_BYTES),
            self.strategy,
            Recorder(logs, places),
            self._codec,
            time,
            time.clock,
        )
        self._reading = ReadPath(self._client)
        self._reads: ReadPath | DegradedMode = self._reading
        self._grants = Grants(
            self._client,
            self._reading,
            recovery,
            write=self.write,
            tick_seconds=self.tick_seconds,
            threads=self._threads,
        )
        self._writing = WritePath(self._client, self._reading, self._grants, mergers, on_conflict)
        self._writes: WritePath | DegradedMode = self._writing
        self._degrading: DegradedMode | None = None
        if on_error == "degrade" and not self._authority.is_local:
            self._degrading = DegradedMode(
                self._client, self._reading, self._writing, keeps=degraded_writes == "keep"
            )
            self._reads = self._writes = self._degrading
        connect(self._client, bus, self.tick_seconds)
        self._abandon = weakref.finalize(self, abandon, self._client)
        self._abandon.atexit = False
        self._watching = Watching(self._authority, self._check_open)
        reset_after_fork(self)

    def __repr__(self) -> str:
        where = "memory" if self._store is None else repr(self._store)
        return f"<CoherenceCore {self.name!r} {self.strategy.name!r} in {where}>"

    @property
    def store(self) -> Store | None:
        """The store that the artifacts are in; None if they are in memory only."""
        return self._store

    @property
    def codec(self) -> Codec:
        """What encodes the artifacts."""
        return self._codec

    @property
    def on_conflict(self) -> OnConflict:
        """What becomes of a write whose base is no longer the newest version."""
        return self._writing.on_conflict

    @property
    def on_error(self) -> OnError:
        """What becomes of reads while the engine cannot be reached."""
        return "strict" if self._degrading is None else "degrade"

    @property
    def bound(self) -> Bound:
        """How old what is read may be."""
        return self.strategy.bound

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all invalidations and log records are out; whether they were in time."""
        invalidations = self._client.invalidations
        published = invalidations is None or invalidations.flush(timeout)
        return self._client.recorder.logs.flush(timeout) and published

    aflush = twin(flush)

    def close(self) -> None:
        """Publish and log what waits, and close what was opened. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        with ExitStack() as last_first:  # All are let go, whatever one of them raises.
            if self._degrading is not None:
                last_first.enter_context(limit_retries(PATIENCE))
            if self._owns_store and self._store is not None:
                last_first.callback(self._store.close)
            if self._own_threads is not None:
                last_first.callback(self._own_threads.close)
            last_first.callback(self._client.recorder.logs.close)
            self._abandon.detach()
            if self._client.invalidations is not None:
                last_first.callback(self._client.invalidations.close)
            if self._client.follower is not None:
                last_first.callback(self._client.follower.close)
            last_first.callback(self._grants.close)
            if self._degrading is not None:
                last_first.callback(self._degrading.close)
            last_first.callback(self._watching.wake_all)

    def after_fork(self) -> None:
        """In a child of this process: it is another client from now on."""
        client = self._client
        parts = (client.directory, client.contents, client.authority)
        for part in (*parts, client.invalidations, client.follower):
            if part is not None:
                part.after_fork()

    @property
    def threads(self) -> Threads:
        """Where the asynchronous twins run."""
        return self._threads

    @property
    def _threads(self) -> Threads:
        if self._store is not None:
            return self._store._threads
        if self._own_threads is None:
            self._own_threads = Threads(_LOCAL_THREADS)
        return self._own_threads

    # Agents.

    def register_agent(self, agent_name: str, now_tick: int | None = None) -> str:
        """Make an agent known, and begin it afresh; its name. Not needed before it works."""
        self._expect_agent(agent_name)
        self._grants.begin_afresh(agent_name, now_tick)
        return agent_name

    def unregister_agent(self, agent_name: str) -> None:
        """Forget an agent that is done: what it had, and what it saw."""
        self._check_open()
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
                self._grants.touch(agent)
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

    # Reading.

    def artifacts(self, prefix: str = "") -> list[str]:
        """The names of the artifacts that are there, sorted."""
        self._check_open()
        self._expect_engine("which artifacts there are")
        return sorted(self._authority.names(prefix))

    @overload
    def read(
        self, agent_name: str, artifact: str, *, now_tick: int | None = None, have: None = None
    ) -> Artifact: ...

    @overload
    def read(
        self, agent_name: str, artifact: str, *, now_tick: int | None = None, have: Iterable[Have]
    ) -> Answer: ...

    def read(
        self,
        agent_name: str,
        artifact: str,
        *,
        now_tick: int | None = None,
        have: Iterable[Have] | None = None,
    ) -> Artifact | Answer:
        """The newest version of an artifact, within the strategy's bound; raises `NotFound`.

        With `have`, the versions that the agent still has (numbers, or pairs of a number and a
        `content_hash`), it is `NotModified` if the newest is among them, a `Delta` if a patch
        against one of them is smaller than the whole, else `Full`.
        """
        if self._closed or agent_name not in self._agents:
            self._expect_agent(agent_name)
            self._expect_artifact(artifact)
        if now_tick is not None or self._grants.held:
            self._grants.touch(agent_name, now_tick)
        try:
            found = self._reads.read(agent_name, artifact)
        except (InvalidInput, NotFound, TypeError):
            self._expect_artifact(artifact)  # Here, so that reads that find something are fast.
            raise
        return found if have is None else answer(found, have, partial(self.older, artifact))

    def snapshot(self, agent_name: str, artifacts: Iterable[str]) -> dict[str, Artifact]:
        """The newest versions of several artifacts, all at one moment, by name.

        Raises `NotFound` for the first that is not there.
        """
        self._expect_agent(agent_name)
        # One name alone would be taken for its letters.
        expect(not isinstance(artifacts, str), "artifacts are a list of names", artifacts)
        names = list(artifacts)
        for artifact in names:
            self._expect_artifact(artifact)
        return self._reads.snapshot(agent_name, names)

    def search(
        self,
        agent_name: str,
        prefix: str = "",
        *,
        where: Callable[[Any], bool] | None = None,
        limit: int | None = None,
        offset: int = 0,
        among: Callable[[str, Version], bool] | None = None,
    ) -> list[Artifact]:
        """The artifacts whose names begin so and whose values pass, the latest written first.

        All as they are at one moment. Values that do not pass count as not seen. `among` is
        asked before a value is fetched, with a name and its newest version.
        """
        self._expect_agent(agent_name)
        expect_whole(offset, 0, "offset")
        if limit is not None:
            expect_whole(limit, 0, "limit")
        return self._reads.search(agent_name, prefix, where, limit, offset, among)

    # For adapters of frameworks, which keep account of who has seen what themselves.

    def cached(self, agent_name: str, artifact: str) -> Artifact | None:
        """An artifact that may be served without asking the engine; None if one has to ask."""
        if self._degrading is not None and self._degrading.is_active:
            return None
        found = self._reading.cached(agent_name, artifact)
        if found is not None and self._grants.held:
            self._grants.touch(agent_name)
        return found

    def newest(self, artifacts: Iterable[str]) -> dict[str, Version]:
        """The newest versions of those of several artifacts that are there, at one moment."""
        found = self._asked(lambda: self._authority.newest_of(artifacts))
        return {name: one for name, one in found.items() if one is not None and not one.deleted}

    def versions(self, prefix: str = "") -> dict[str, Version]:
        """The newest versions of all artifacts that are there, by name, at one moment."""
        return self._asked(lambda: self._authority.names(prefix))

    def older(self, artifact: str, number: int) -> Content | None:
        """What an older version held; None if it is not in the history of the artifact."""
        try:
            version = self._asked(lambda: self._authority.version(artifact, number))
            if version is None or version.deleted:
                return None
            return self._reading.content(artifact, version)
        except (MissingObjects, NotFound, Unavailable):
            return None

    def prompt_key(self) -> bytes:
        """What the tags of artifacts in prompts are checked with: of this set, in this store."""
        key = self._asked(self._authority.prompt_key)
        return hmac.digest(key, self.name.encode("utf-8", "surrogatepass"), "sha256")

    def _asked(self, ask: Callable[[], R]) -> R:
        self._check_open()
        self._expect_engine("which artifacts there are")
        if self._degrading is None:
            return ask()
        with limit_retries(PATIENCE):
            return ask()

    aartifacts = near_twin(artifacts)
    aread = near_twin(read)
    asnapshot = near_twin(snapshot)
    asearch = twin(search)

    # Writing.

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
        if type(artifact) is not str or artifact == "" or not artifact.isascii():
            self._expect_artifact(artifact)
        if if_version is not None:
            _check_version(if_version)
        if now_tick is not None or self._grants.held:
            self._grants.touch(agent_name, now_tick)
        proposed = Proposal(Content.of(value, self._codec), if_version)
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
        note: Note | None = None,
    ) -> Artifact:
        """Change an artifact with a function of its value, whatever others do meanwhile.

        The function gives the new value; if it gives None, the one that it was handed, which
        it may have changed, is taken. If others were faster, both changes are merged; if that
        cannot be, or `on_conflict` is not "merge", the function is called again with what is
        newest: it must not do anything else. `default` is what it gets where there is no
        artifact; without one that raises `NotFound`. An artifact that another agent holds is
        waited for, `timeout` seconds at most. Who lost the race to others for as long, again
        and again, gets `VersionConflict`. `note` is kept beside the version that is made.
        """
        self._expect_agent(agent_name)
        self._expect_artifact(artifact)
        expect_change(change)
        expect_timeout(timeout)
        made = self._writes.edit(agent_name, artifact, Edit(change, default, timeout, note))
        self._directory.read(agent_name, artifact, made.origin)
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

        return await edit_async(self._threads, edit, change, timeout)

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
        self._expect_agent(agent_name)
        expect(isinstance(values, Mapping), "what is published is a dict by artifact", values)
        versions = if_versions or {}
        _check_versions(versions, values)
        bases = {name: Base(one.origin, True) for name, one in (since or {}).items()}
        proposed = {
            name: Proposal(value, versions.get(name), bases.get(name))
            for name, value in values.items()
        }
        return self.propose(agent_name, proposed)

    def propose(self, agent_name: str, proposals: Mapping[str, Proposal]) -> dict[str, Artifact]:
        """As `publish`, for adapters: each proposal says what its value was made from."""
        self._expect_agent(agent_name)
        proposed = {}
        for artifact, one in proposals.items():
            self._expect_artifact(artifact)
            content = None if one.content is ABSENT else Content.of(one.content, self._codec)
            if content is None and one.if_version == 0:
                raise InvalidInput(
                    f"artifact {artifact!r:.80} cannot be taken away where there is none: leave it "
                    "out, or give the version that is to go"
                )
            proposed[artifact] = one._replace(content=content)
        made = self._writes.write(agent_name, proposed, "publish")
        return {name: one for name, one in made.items() if one is not None}

    def not_seen(self, agent_name: str, made: Artifact, value: Any) -> Version:
        """Compare an agent's next write with what it put, and not with what that was merged with.

        For interfaces whose puts give nothing back; the version that is compared with.
        """
        content = Content.of(value, self._codec)
        own = PendingVersion.of(made.version, made.agent, made.time, content)
        self._directory.put_blindly(agent_name, made.name, made.origin, own)
        return own

    def delete(self, agent_name: str, artifact: str, *, if_version: int | None = None) -> bool:
        """Take an artifact away; False if there was none. In a store its history stays.

        If it is written again, its versions go on from where they were.
        """
        self._expect_agent(agent_name)
        self._expect_artifact(artifact)
        _check_version(if_version)
        return self._writes.delete(agent_name, artifact, if_version)

    aregister_artifact = near_twin(register_artifact)
    awrite = near_twin(write)
    apublish = near_twin(publish)
    adelete = near_twin(delete)

    # Grants and signs of life.

    def hold(self, agent_name: str, artifact: str, *, timeout: float | None = None) -> Grant:
        """The exclusive right of an agent to write an artifact, for a `with` block.

        While it lasts the writes of all others are refused with `ArtifactHeld`, and the
        agent's reads need not ask. Waits at most `timeout` seconds for another holder,
        without one as long as it takes, and raises `ArtifactHeld` then. An agent that holds it
        already waits as others do, but a thread never waits for ever for what it holds itself.
        """
        self._expect_agent(agent_name)
        self._expect_artifact(artifact)
        self._expect_engine("a grant")
        return self._grants.acquire(agent_name, artifact, timeout)

    async def ahold(
        self,
        agent_name: str,
        artifact: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as its twin
    ) -> Grant:
        """The asynchronous twin of `hold`; no thread waits for it."""
        self._expect_agent(agent_name)
        self._expect_artifact(artifact)
        self._expect_engine("a grant")
        return await self._grants.aacquire(agent_name, artifact, timeout)

    def heartbeat(self, agent_name: str, now_tick: int | None = None) -> None:
        """Say that an agent is alive, and renew what it holds. Every operation says the first."""
        self._expect_agent(agent_name)
        if self._degrading is not None and self._degrading.is_active:
            self._grants.touch(agent_name, now_tick)  # Nobody waits for an engine that is away.
        else:
            self._grants.heartbeat(agent_name, now_tick)

    def recover(self, agent_name: str, now_tick: int | None = None) -> None:
        """Begin an agent afresh, for example after a restart: without copies and grants."""
        self._expect_agent(agent_name)
        if self._degrading is not None and self._degrading.is_active:
            with limit_retries(0):
                self._grants.begin_afresh(agent_name, now_tick)
            self._expect_engine("what an agent left behind")
        self._grants.recover(agent_name, now_tick)

    def enforce_stable_grant_timeouts(
        self,
        current_tick: int | None = None,
        heartbeat_timeout_ticks: int | None = None,
        max_hold_ticks: int | None = None,
        on_reclaim: Callable[[Reclaim], None] | None = None,
    ) -> list[Reclaim]:
        """End the grants of agents that are silent or hold for too long; what was ended.

        With `crash_recovery` enabled that is done in the background. `current_tick` is compared
        with the ticks that agents of this object gave; other processes are judged by how long
        this one has seen their grants unchanged, or in the same hands.
        """
        self._check_open()
        self._expect_engine("who holds what")
        return self._grants.enforce(
            current_tick, heartbeat_timeout_ticks, max_hold_ticks, on_reclaim
        )

    aheartbeat = twin(heartbeat)
    arecover = twin(recover)
    aenforce_stable_grant_timeouts = twin(enforce_stable_grant_timeouts)

    # Watching, history and logs.

    def watch(
        self,
        artifacts: Iterable[str] | None = None,
        *,
        prefix: str = "",
        after: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[ArtifactChange]:
        """Yield each new version of some artifacts, of those below a prefix, or of all.

        From operation `after + 1` on, or from now on. Ends when none came for `timeout`
        seconds; without one, never.
        """
        self._check_open()
        self._expect_engine("what changes")
        position = self._authority.sequence() if after is None else after
        return self._watching.watch(artifacts, prefix, position, timeout)

    async def awatch(
        self,
        artifacts: Iterable[str] | None = None,
        *,
        prefix: str = "",
        after: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as its twin
    ) -> AsyncIterator[ArtifactChange]:
        """The asynchronous twin of `watch`; no thread waits for it."""
        self._check_open()
        self._expect_engine("what changes")
        position = await self._threads.run(self._authority.sequence) if after is None else after
        changes = self._watching.awatch(artifacts, prefix, position, timeout, self._threads)
        async for change in changes:
            yield change

    def history(self, artifact: str) -> ArtifactTimeline:
        """The versions of an artifact, as a timeline to look at.

        A step has the number of its `version`, by which it is also found, and says whether
        the artifact was `deleted` there. Raises `NotFound` for an artifact that never was.
        """
        from ropewalk.coherence.history import ArtifactTimeline

        self._check_open()
        self._expect_artifact(artifact)
        self._expect_engine("the history of an artifact")
        found = self._authority.timeline(artifact)
        assert isinstance(found, ArtifactTimeline)
        return found

    def record_to(self, folder: str | PathLike[str]) -> None:
        """Record the run in a folder from now on, for `ropewalk replay`.

        Best before the first agent works: replay cannot judge what it has not seen begin.
        """
        self._check_open()
        self._client.recorder.record_to(folder)

    ahistory = twin(history)

    # While the engine cannot be reached.

    @property
    def is_degraded(self) -> bool:
        """Whether the engine could not be reached, and has not answered since."""
        return self._degrading is not None and self._degrading.is_active

    @property
    def degradation_count(self) -> int:
        """How many reads and writes were answered without the engine."""
        return 0 if self._degrading is None else self._degrading.count

    def kept(self) -> list[KeptWrite]:
        """The writes that are not in the engine: they wait for it, or met a conflict there."""
        return [] if self._degrading is None else self._degrading.kept()

    def reconciled(self) -> list[Reconciled]:
        """What became of the writes that were kept, the last thousand of them."""
        return [] if self._degrading is None else self._degrading.reconciled()

    def discard(self, kept: KeptWrite) -> bool:
        """Forget a kept write, for example when its conflict is settled by another write."""
        return self._degrading is not None and self._degrading.discard(kept)


def _authority_of(store: Store | None, name: str, codec: Codec, time: Time) -> Authority:
    if store is None:
        return LocalAuthority(name, codec, time)
    return StoreAuthority(store, name, codec, time.nanoseconds)


def _recovery_of(given: Any, strategy: Strategy, tick_seconds: float) -> CrashRecoveryConfig:
    """What is to be done after crashes, checked."""
    config = CrashRecoveryConfig() if given is None else given
    if not isinstance(config, CrashRecoveryConfig):
        raise InvalidInput(f"crash_recovery is a CrashRecoveryConfig, not {config!r:.80}")
    lease = strategy.bound.seconds if strategy.name == "lease" else None
    config.validate(tick_seconds=tick_seconds, lease_seconds=lease)
    return config


def _check_choice(name: str, given: Any, known: Any) -> None:
    """One of the words of a `Literal`, checked."""
    if given not in get_args(known):
        words = ", ".join(map(repr, get_args(known)))
        raise InvalidInput(f"{name} is one of {words}, not {given!r:.80}")


def _check_names(name: Any, instance_id: Any) -> None:
    expect(isinstance(name, str) and name != "", "name is a text that is not empty", name)
    usable = instance_id is None or (isinstance(instance_id, str) and instance_id != "")
    expect(usable, "instance_id is a text that is not empty", instance_id)


def _is_text(name: str) -> bool:
    """Whether it can be written down: half of a character, a lone surrogate, cannot."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_version(given: int | None) -> None:
    if given is not None and (type(given) is not int or given < 0):
        raise InvalidInput(f"if_version is a whole number from 0 on, not {given!r:.80}")


def _check_versions(expected: Mapping[str, int], values: Mapping[str, Any]) -> None:
    if unknown := expected.keys() - values.keys():
        raise InvalidInput(f"if_versions names what is not published: {sorted(unknown)}")
    for version in expected.values():
        _check_version(version)
