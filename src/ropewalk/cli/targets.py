"""Resolves the store, timeline, thread or artifact that a command is about.

The coherence layer is imported only if there are artifacts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.adapters.langgraph.saver.checkpoints import TENANT
from ropewalk.adapters.langgraph.saver.timeline import GraphTimeline, graph_names, is_graph
from ropewalk.cli.errors import SeveralTimelines, Usage, with_hint
from ropewalk.cli.views import View
from ropewalk.codec import inspection_codec
from ropewalk.errors import InvalidInput, NotFound, RopewalkError
from ropewalk.store import Store, split_name
from ropewalk.store import open as open_store
from ropewalk.threads.address import Address, Id, check_id, id_of, tenant_of
from ropewalk.threads.thread import ThreadTimeline
from ropewalk.timeline import Timeline

if TYPE_CHECKING:
    from ropewalk.coherence.protocol import Version

FOLDER = ".ropewalk"
VARIABLE = "ROPEWALK_STORE"

SHARED = "coherence"
"""The tenant of the spaces of sets; repeated here to avoid the import."""

_DEFAULT = "shared"
"""The default set, as of a `CoherenceCore`."""

_LISTS = "`ropewalk artifacts` lists the artifacts"
_TENANT = tenant_of(None)


def store_url(given: str | None) -> str:
    """The given store, or that of the environment, or the nearest folder upwards."""
    if given is not None:
        return given
    told = os.environ.get(VARIABLE)
    if told:
        return told
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / FOLDER).is_dir():
            return str(folder / FOLDER)
    raise with_hint(
        NotFound(f"there is no store: no folder {FOLDER} in {here} or above it"),
        "make one with `ropewalk init`, or name one with --store",
    )


def new_store_url(given: str | None) -> str:
    """The given store, or that of the environment, or a folder here."""
    return given if given is not None else os.environ.get(VARIABLE) or FOLDER


@contextmanager
def opened_store(given: str | None, *, create: bool = False) -> Iterator[Store]:
    """Open the store of a command; nothing is created unless requested."""
    url = new_store_url(given) if create else store_url(given)
    refuse_memory(url)
    try:
        store = open_store(url, create=create)
    except NotFound as error:
        raise with_hint(
            error, "make one with `ropewalk init`, or name another with --store"
        ) from None
    with store:
        yield store


def refuse_memory(url: str) -> None:
    """Raise `InvalidInput` for a store that would end with the command."""
    if url == "memory://":
        raise InvalidInput("a store in memory ends with its process: name a folder")


def timeline_in(store: Store, agent: str | None, branch: str | None) -> Timeline:
    """The named timeline, or the only one of a store.

    Raises `SeveralTimelines` if there are more.
    """
    names = Timeline.agents(store)
    if agent is None:
        if not names:
            from ropewalk.state import Versioned  # Not loaded for a command that goes well.

            states = Versioned.names(store)
            if states:
                there = listed(states)
                raise with_hint(
                    NotFound(f"the store has no timeline of an agent, but states: {there}"),
                    "a program shows their steps, with Versioned(store, name=...).history()",
                )
            raise with_hint(
                NotFound("the store has no timeline yet"),
                "`ropewalk demo` makes one, and so does the first checkpoint of a Timeline",
            )
        if len(names) > 1:
            raise with_hint(
                SeveralTimelines(f"the store has {len(names)} timelines: {listed(names)}"),
                "name the one to change with --timeline",
            )
        agent = names[0]
    made = Timeline(agent, store, codec=inspection_codec, branch=branch if agent in names else None)
    if agent not in names:
        raise NotFound(f"the store has no timeline {agent!r}; it has {listed(names) or 'none'}")
    return made


def changed_last(store: Store) -> str:
    """The name of the timeline with the newest operation."""

    def when(name: str) -> int:
        operations = Timeline(name, store).last_operations(limit=1)
        return operations[0].time if operations else 0

    return max(Timeline.agents(store), key=when)


def listed(names: Sequence[str | None]) -> str:
    """Names as text; of many only the first."""
    shown = ", ".join(repr(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


class ArtifactRow(NamedTuple):
    """An artifact in a list."""

    set_name: str
    name: str
    newest: Version


class ArtifactView(View):
    """The value of an artifact; refs by the names of artifacts."""

    def __init__(self, store: Store, timeline: Timeline) -> None:
        self._store, self._space = store, timeline._history.space

    def ref(self, name: str) -> tuple[str, str]:
        """The kind of a ref, and its name."""
        return "artifact", artifact_at(self._store, self._space, name)


def sets_in(store: Store) -> list[str]:
    """The names of the sets in a store, sorted."""
    return sorted(split_name(space)[1] for space in store.spaces(f"{SHARED}/"))


def artifacts_in(store: Store, set_name: str) -> dict[str, Version]:
    """The newest versions of the artifacts of a set, by name."""
    from ropewalk.coherence.store_authority import StoreAuthority

    return StoreAuthority(store, set_name, inspection_codec).names()


def artifact_rows(store: Store, set_name: str | None) -> list[ArtifactRow]:
    """The artifacts of a set, or of all sets, most recently written first."""
    names = sets_in(store) if set_name is None else [_known(store, set_name)]
    rows = [
        ArtifactRow(one, artifact, newest)
        for one in names
        for artifact, newest in sorted(artifacts_in(store, one).items())
    ]
    return sorted(rows, key=lambda row: row.newest.time, reverse=True)


def artifact_timeline(
    store: Store, artifact: str, set_name: str | None, branch: str | None
) -> Timeline:
    """The timeline of an artifact; raises `NotFound`, or `Usage` if it is ambiguous."""
    from ropewalk.coherence.history import ArtifactTimeline

    if not artifact:
        raise Usage("--artifact is empty: name an artifact")
    if branch not in (None, artifact):
        raise Usage("the versions of an artifact are on one branch: leave out --branch")
    chosen = _chosen(store, set_name)
    try:
        return ArtifactTimeline(chosen, artifact, store, inspection_codec)
    except NotFound:
        raise _unknown(store, artifact, chosen) from None


def _chosen(store: Store, set_name: str | None) -> str:
    """The named set; else the only one, or the default one."""
    if set_name is not None:
        return _known(store, set_name)
    names = sets_in(store)
    if not names:
        raise NotFound("the store has no artifacts")
    if len(names) == 1:
        return names[0]
    if _DEFAULT in names:
        return _DEFAULT
    raise with_hint(
        Usage(f"the store has {len(names)} sets of artifacts: {listed(names)}"),
        "choose one with --set",
    )


def _known(store: Store, set_name: str) -> str:
    names = sets_in(store)
    if set_name in names:
        return set_name
    raise with_hint(
        NotFound(
            f"the store has no set of artifacts {set_name!r}; it has {listed(names) or 'none'}"
        ),
        _LISTS,
    )


def _unknown(store: Store, artifact: str, chosen: str) -> RopewalkError:
    there = listed(sorted(artifacts_in(store, chosen))) or "none"
    error = NotFound(f"set {chosen!r} has no artifact {artifact!r}; it has {there}")
    others = [one for one in sets_in(store) if artifact in artifacts_in(store, one)]
    return with_hint(error, f"there is one in {listed(others)}: add --set" if others else _LISTS)


def no_artifact_named(store: Store, set_name: str | None) -> RopewalkError:
    """The error if only a set was named, or if the store has only artifacts."""
    if set_name is not None:
        there = listed(sorted(artifacts_in(store, _known(store, set_name)))) or "none"
        told = Usage(f"set {set_name!r} has the artifacts {there}")
    else:
        told = Usage(
            "the store has no timeline of an agent, but artifacts, in " + told_sets(sets_in(store))
        )
    return with_hint(told, f"choose one with --artifact; {_LISTS}")


def is_a_set(name: str) -> RopewalkError:
    """The error if a set of artifacts was taken for an agent."""
    return with_hint(
        NotFound(f"the store has no timeline {name!r}, but a set of artifacts of that name"),
        f"choose an artifact with --artifact and --set {name}; {_LISTS}",
    )


def told_sets(names: list[str]) -> str:
    """Sets as text."""
    return f"{'sets' if len(names) > 1 else 'set'} {listed(names)}"


def artifact_at(store: Store, space: str, ref: str) -> str:
    """The artifact of a ref of a set."""
    from ropewalk.coherence.history import artifact_of

    return artifact_of(store, space, ref)


CONVERSATIONS, GRAPHS = _TENANT, TENANT
"""Prefixes the id of a thread where its kind is ambiguous."""


class Named(NamedTuple):
    """The named timeline: of an agent, of a thread, or of an artifact.

    Ids of threads and users are written as encoded names: '#12' is the number 12.
    """

    agent: str | None = None
    thread: str | None = None
    user: str | None = None
    artifact: str | None = None
    set_name: str | None = None
    branch: str | None = None

    def find(self, store: Store) -> Timeline:
        """The timeline; raises `NotFound`, or `Usage` if it is ambiguous."""
        self._expect_one()
        if self.thread is not None:
            return timeline_of(store, self.thread, self.user, self.branch)
        if self.user is not None:
            raise _no_thread_named(names_by_user(store), self.user)
        if self.artifact is not None:
            return artifact_timeline(store, self.artifact, self.set_name, self.branch)
        if self.set_name is not None:
            raise no_artifact_named(store, self.set_name)
        self._expect_agent(store)
        return timeline_in(store, self.agent, self.branch)

    def _expect_one(self) -> None:
        kinds = (
            self.agent is not None,
            (self.thread, self.user) != (None, None),
            (self.artifact, self.set_name) != (None, None),
        )
        if sum(kinds) > 1:
            raise Usage(
                "--timeline names a timeline of an agent, --thread one of a thread, and --artifact "
                "one of an artifact: give one"
            )

    def _expect_agent(self, store: Store) -> None:
        """Raise a helpful error if no agent was named and all timelines are threads."""
        names = Timeline.agents(store)
        if self.agent is None and not names:
            known, graphs = names_by_user(store), graph_names(store)
            if known or graphs:
                raise _no_thread_named(known, None, graphs)
            if sets_in(store):
                raise no_artifact_named(store, None)
        elif self.agent is not None and self.agent not in names and self.agent in sets_in(store):
            raise is_a_set(self.agent)


def read_id(written: str, option: str) -> Id:
    """Parse an id; raises `Usage`."""
    try:
        id = id_of(written)
    except ValueError:
        raise Usage(
            f"{option} {written!r:.80} is no number: '#12' is the number 12, and a text that "
            "begins with # is written with one more"
        ) from None
    try:
        return check_id(id, option.removeprefix("--"))
    except InvalidInput as error:
        raise Usage(str(error)) from None


def read_user(written: str | None) -> Id | None:
    """Parse a user, if one is given."""
    return None if written is None else read_id(written, "--user")


def names_by_user(store: Store) -> dict[str | None, list[str]]:
    """The names of the threads of each user, both encoded; None for the anonymous user."""
    found: dict[str | None, list[str]] = {}
    for space in store.spaces(_TENANT):
        tenant, name = split_name(space)
        kind, separator, user = tenant.partition(":")
        if kind == _TENANT and _is_id(user) and _is_id(name):
            found.setdefault(user if separator else None, []).append(name)
    return found


def _is_id(name: str) -> bool:
    """Whether a name encodes an id; otherwise it is a timeline that is not a thread."""
    try:
        id_of(name)
    except ValueError:
        return False
    return True


def timeline_of(store: Store, thread: str, user: str | None, branch: str | None) -> Timeline:
    """The timeline of a thread of either kind; raises `NotFound`, or `Usage` if both match.

    `langgraph:ID` is one of LangGraph's, `threads:ID` a conversation.
    """
    kind, graph, conversation = kinds_of(thread)
    if user is not None:
        kind = CONVERSATIONS
    fits = kind != CONVERSATIONS and bool(graph) and is_graph(store, graph)
    if fits and kind is None and _is_conversation(store, conversation):
        raise with_hint(
            Usage(f"there are two threads {thread!r}: a conversation and one of LangGraph"),
            f"write --thread {CONVERSATIONS}:{thread} or --thread {GRAPHS}:{thread}",
        )
    if fits:
        return GraphTimeline(graph, store, codec=inspection_codec, branch=branch)
    if kind == GRAPHS:
        there = listed(graph_names(store)) or "none"
        raise NotFound(f"the store has no LangGraph thread {graph!r}; it has {there}")
    return thread_in(store, conversation, user, branch)


def kinds_of(thread: str) -> tuple[str | None, str, str]:
    """The kind of thread in a given id, if any; and its id, for either kind."""
    kind, separator, rest = thread.partition(":")
    if separator and rest and kind in (GRAPHS, CONVERSATIONS):
        return kind, rest, rest
    return None, thread, thread


def _is_conversation(store: Store, written: str) -> bool:
    try:
        address = Address(read_id(written, "--thread"), None, None)
    except Usage:
        return False
    return address.name in names_by_user(store).get(None, [])


def thread_in(store: Store, thread: str, user: str | None, branch: str | None) -> Timeline:
    """The timeline of a thread; raises `NotFound`."""
    address = Address(read_id(thread, "--thread"), read_user(user), branch)
    known = names_by_user(store)
    there = known.get(user, [])
    if address.name not in there:
        raise _unknown_thread(thread, user, known)
    return ThreadTimeline(
        address.name, store, codec=inspection_codec, tenant=address.tenant, branch=branch
    )


def _unknown_thread(thread: str, user: str | None, known: dict[str | None, list[str]]) -> Exception:
    whose = "" if user is None else f" of user {user!r}"
    there = listed(known.get(user, []))
    of_whom = "without a user" if user is None else "of that user"
    rest = f"; {of_whom} it has {there}" if there else ""
    error = NotFound(f"the store has no thread {thread!r}{whose}{rest}")
    others = [one for one, names in known.items() if thread in names]
    if not others:
        return with_hint(error, "`ropewalk threads` lists the threads, those of LangGraph too")
    if None in others:
        return with_hint(error, "there is one without a user: leave out --user")
    return with_hint(error, f"there is one of {listed(others)}: add --user")


def _no_thread_named(
    known: dict[str | None, list[str]], user: str | None, graphs: Sequence[str] = ()
) -> Exception:
    """The error if only a user was named, or if the store has only threads."""
    if user is not None:
        return with_hint(
            Usage(f"user {user!r} has the threads {listed(known.get(user, [])) or 'none'}"),
            "choose one with --thread",
        )
    told = [
        f"{listed(names)}{'' if one is None else f' of user {one!r}'}"
        for one, names in sorted(known.items(), key=lambda item: item[0] or "")
    ]
    if graphs:
        told.insert(0, f"{listed(graphs)} of LangGraph")
    shown = "; ".join(told[:20]) + (f"; and of {len(told) - 20} more users" * (len(told) > 20))
    return with_hint(
        Usage(f"the store has no timeline of an agent, but threads: {shown}"),
        "choose one with --thread, and --user if it has one; `ropewalk threads` says more",
    )
