"""Which timeline a command is about, and which threads there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ropewalk.adapters.langgraph.names import TENANT
from ropewalk.adapters.langgraph.timeline import GraphTimeline, graph_names, is_graph
from ropewalk.cli._artifacts import artifact_timeline, is_a_set, no_artifact_named, sets_in
from ropewalk.cli._errors import Usage, with_hint
from ropewalk.cli._finding import listed, timeline_in
from ropewalk.codec import inspection_codec
from ropewalk.errors import InvalidInput, NotFound
from ropewalk.store import Store, split_name
from ropewalk.threads.address import Address, Id, check_id, id_of, tenant_of
from ropewalk.threads.thread import ThreadTimeline
from ropewalk.timeline import Timeline

_TENANT = tenant_of(None)
CONVERSATIONS, GRAPHS = _TENANT, TENANT
"""What stands before the id of a thread where it is not clear of which kind it is."""


class Named(NamedTuple):
    """The timeline that somebody named: of an agent, of a thread, or of an artifact.

    The ids of threads and users are written as names are spelled: '#12' is the number 12.
    """

    agent: str | None = None
    thread: str | None = None
    user: str | None = None
    artifact: str | None = None
    set_name: str | None = None
    branch: str | None = None

    def find(self, store: Store) -> Timeline:
        """The timeline; raises `NotFound`, or `Usage` if it cannot be chosen."""
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
        """Raise what helps who named no agent, but has no other timelines than of threads."""
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
    """The id that somebody wrote; raises `Usage`."""
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
    """The user that somebody wrote, if one is."""
    return None if written is None else read_id(written, "--user")


def names_by_user(store: Store) -> dict[str | None, list[str]]:
    """The names of the threads of each user, both as they are spelled; None is nobody."""
    found: dict[str | None, list[str]] = {}
    for space in store.spaces(_TENANT):
        tenant, name = split_name(space)
        kind, separator, user = tenant.partition(":")
        if kind == _TENANT and _is_id(user) and _is_id(name):
            found.setdefault(user if separator else None, []).append(name)
    return found


def _is_id(name: str) -> bool:
    """Whether a name spells an id; else it is of a timeline that is no thread."""
    try:
        id_of(name)
    except ValueError:
        return False
    return True


def timeline_of(store: Store, thread: str, user: str | None, branch: str | None) -> Timeline:
    """The timeline of a thread of either kind; raises `NotFound`, or `Usage` if both fit.

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
    """The kind of thread that somebody wrote, if one is; and its id, for either kind."""
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
        raise _unknown(thread, user, known)
    return ThreadTimeline(
        address.name, store, codec=inspection_codec, tenant=address.tenant, branch=branch
    )


def _unknown(thread: str, user: str | None, known: dict[str | None, list[str]]) -> Exception:
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
    """What to say to who named a user only, or nothing where there are only threads."""
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
