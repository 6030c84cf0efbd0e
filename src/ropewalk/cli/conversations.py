"""Commands that show conversations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer

from ropewalk import adapters
from ropewalk.adapters.langgraph.saver.checkpoints import space_of
from ropewalk.adapters.langgraph.saver.timeline import GraphTimeline
from ropewalk.cli.care import size as bytes_shown
from ropewalk.cli.command import Run, command
from ropewalk.cli.errors import Usage, with_hint
from ropewalk.cli.output import Span, plain
from ropewalk.cli.show import Limit, most
from ropewalk.cli.targets import kinds_of, names_by_user, read_id, read_user, timeline_of
from ropewalk.cli.views import GraphRow, graph_rows, message_record
from ropewalk.codec import inspection_codec
from ropewalk.errors import InvalidInput
from ropewalk.store import Store, space_name
from ropewalk.threads import Message, TextPart, ThreadCheckpointer, ThreadInfo, ToolCall, ToolResult
from ropewalk.threads.address import address_of, name_of
from ropewalk.threads.search import Query

Search = Annotated[
    str | None,
    typer.Option(
        "--search", metavar="TEXT", help="Only those that say so: any part of a text, in any case."
    ),
]
_ROLES = {"user": "bold green", "assistant": "bold cyan", "tool": "yellow"}


class _Row(NamedTuple):
    """A thread, and when it was changed."""

    changed: datetime
    info: ThreadInfo
    messages: int


@command("users")
def threads(
    run: Run,
    search: Search = None,
    limit: Limit = 50,
    size: Annotated[
        bool, typer.Option("--size", help="Say what each takes; looks at everything stored.")
    ] = False,
) -> None:
    """List the threads, the latest changed first: conversations, and those of LangGraph.

    Without --user, those of all users. --search looks for the ids of LangGraph's threads.

    Example: ropewalk threads --user alice --search parcel
    """
    with run.opened() as store:
        chat: ThreadCheckpointer[Any] = ThreadCheckpointer(store, codec=inspection_codec)
        users = list(names_by_user(store)) if run.user is None else [run.user]
        found: list[_Row | GraphRow] = [row for user in users for row in _rows(chat, user, search)]
        if run.user is None:
            wanted = Query.parse(search or "")
            found += [row for row in graph_rows(store) if wanted.matches(row.name)]
        found.sort(key=lambda row: row.changed, reverse=True)
        sizes = _sizes(run, store) if size else {}
        for row in found[: most(limit)]:
            _show_row(run, row, sizes)


def _rows(chat: ThreadCheckpointer[Any], user: str | None, search: str | None) -> Iterator[_Row]:
    id = read_user(user)
    for info in chat.list_threads({} if id is None else {"user_id": id}, search):
        thread = chat._thread(address_of({"thread_id": info.thread_id, "user_id": id}))
        commit = thread.look()
        if commit is not None:
            changed = datetime.fromtimestamp(commit.time / 1e6, UTC)
            yield _Row(changed, info, thread.contents_at(commit).message_count)


def _sizes(run: Run, store: Store) -> dict[str, int]:
    """What each space takes."""
    with run.out.progress() as progress:
        return {one.name: one.stored for one in store.stats(progress=progress).spaces}


def _show_row(run: Run, row: _Row | GraphRow, sizes: dict[str, int]) -> None:
    name, space, record, spans = (
        _graph_told(row) if isinstance(row, GraphRow) else _thread_told(row)
    )
    if sizes:
        record["bytes"] = sizes.get(space, 0)
        spans.append((f" {bytes_shown(record['bytes'])}", "yellow"))
    when: Span = (f"{row.changed:%Y-%m-%d %H:%M:%S}Z ", "dim")
    run.out.row(record, name, when, (name, "bold cyan"), *spans)


_Told: TypeAlias = tuple[str, str, dict[str, Any], list[Span]]
"""The name of a thread, its space, its record, and what is said of it."""


def _graph_told(row: GraphRow) -> _Told:
    spans: list[Span] = [f" of LangGraph {row.checkpoints:,} checkpoint"]
    spans.append("" if row.checkpoints == 1 else "s")
    if row.step is not None:
        spans.append(f", step {row.step}")
    return row.name, space_of(row.name), row.record(), spans


def _thread_told(row: _Row) -> _Told:
    info = row.info
    record = {
        "kind": "thread",
        "thread_id": info.thread_id,
        "user_id": info.user_id,
        "name": info.thread_name,
        "changed": row.changed.isoformat(),
        "messages": row.messages,
        "metadata": plain(dict(info.metadata)),
    }
    spans: list[Span] = []
    if info.user_id is not None:
        spans.append(f" of {name_of(info.user_id)}")
    spans.append(f" {row.messages:,} message{'' if row.messages == 1 else 's'}")
    if info.thread_name:
        spans.append(f": {_line(info.thread_name)}")
    address = address_of({"thread_id": info.thread_id, "user_id": info.user_id})
    space = space_name(address.tenant, address.name)
    return name_of(info.thread_id), space, record, spans


@command("thread")
def messages(
    run: Run,
    search: Search = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            help="Only those of a user, assistant, system, developer or tool. Can be repeated.",
        ),
    ] = None,
    newest_first: Annotated[
        bool, typer.Option("--newest-first", help="Begin with the latest.")
    ] = False,
    limit: Limit = 50,
    cursor: Annotated[
        str | None,
        typer.Option("--cursor", metavar="C", help="Go on where the page before ended."),
    ] = None,
) -> None:
    """Show the messages of a thread, a page at a time.

    Example: ropewalk messages --thread support-42 --newest-first --limit 10
    """
    if run.thread is None:
        raise Usage("name a thread with --thread; `ropewalk threads` lists them")
    _load_shapes()
    with run.opened() as store:
        page = ThreadCheckpointer[Any](store, codec=inspection_codec).list_messages(
            _config(run, store, run.thread),
            search,
            limit=most(limit),
            role=role or None,
            newest_first=newest_first,
            cursor=cursor,
        )
        for message in page:
            _show_message(run, message)
    if page.cursor is not None:
        _show_cursor(run, page.cursor)


def _load_shapes() -> None:
    """Load how adapters read their items as messages; that needs no framework."""
    for folder in map(Path, adapters.__path__):
        for file in folder.glob("*/shape.py"):
            with suppress(ImportError):  # Then items are read by what they look like.
                import_module(f"{adapters.__name__}.{file.parent.name}.shape")


def _config(run: Run, store: Store, thread: str) -> dict[str, Any]:
    graph = timeline_of(store, thread, run.user, run.branch)
    if isinstance(graph, GraphTimeline):
        state = graph.get_state()
        raise with_hint(
            InvalidInput(f"{thread!r:.80} is a thread of LangGraph, not a conversation of ours"),
            f"`ropewalk show --thread {thread} {run.branch or 'main'} messages` shows its messages"
            if isinstance(state, dict) and "messages" in state
            else "its checkpoints hold no messages, as with a DeltaChannel: "
            "graph.get_state(config) puts them together",
        )
    conversation = kinds_of(thread)[2]
    config = {"thread_id": read_id(conversation, "--thread"), "user_id": read_user(run.user)}
    return config if run.branch is None else {**config, "branch": run.branch}


def _show_message(run: Run, message: Message) -> None:
    if run.json:
        run.out.record(plain(message_record(message)))
        return
    id = name_of(message.id)
    if run.quiet:
        run.out.line(id)
        return
    who = message.role if message.name is None else f"{message.role} ({_line(message.name)})"
    time = (f"{message.created_at:%Y-%m-%d %H:%M:%S}Z ", "dim")
    run.out.line(time, (who, _ROLES.get(message.role, "bold")), (f" {_line(id)}", "dim"))
    if message.text:
        run.out.lines(message.text, before="    ")
    for told in _beside(message):
        run.out.line((f"    ({_line(told)})", "dim"))


def _beside(message: Message) -> Iterator[str]:
    """What is in a message beside its text."""
    parts = message.content if isinstance(message.content, tuple) else ()
    for part in (*parts, *message.tool_calls):
        if isinstance(part, ToolCall):
            yield f"calls {part.name}: {part.arguments}"
        elif not isinstance(part, TextPart | ToolResult):
            yield part.kind
    if message.tool_call_id is not None:
        yield f"answers {message.tool_call_id}"


def _show_cursor(run: Run, cursor: str) -> None:
    if run.json:
        run.out.record({"cursor": cursor})
    elif not run.quiet:
        run.out.line((f"more: --cursor {cursor}", "dim"))


def _line(text: str) -> str:
    return " ".join(text.split())
