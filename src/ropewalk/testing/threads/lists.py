"""Lists of messages: pages, filters and search."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from ropewalk.testing.threads.faces import T1, T2, Base, Face, Faces, each, ids, numbered, said
from ropewalk.threads import AudioPart, ImagePart, Message, Page, TextPart, ToolCall, ToolResult

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ROLES = ("user", "assistant", "tool")
FILTERS: list[dict[str, Any]] = [
    {"role": "user"},
    {"role": ["tool", "assistant"]},
    {"role": ()},
    {"since": BEGIN + timedelta(minutes=20)},
    {"until": BEGIN + timedelta(minutes=20)},
    {"since": BEGIN + timedelta(minutes=5), "until": BEGIN + timedelta(minutes=35)},
    {"metadata": {"turn": 3}},
    {"metadata": {"even": True}, "role": "tool"},
    {"metadata": {"absent": None}},
    {"metadata": {}},
]


def varied(count: int) -> list[Message]:
    """Messages of several roles, times and metadata, not in the order of their times."""
    return [
        Message(
            ROLES[number % 3],  # type: ignore[arg-type]
            f"number {number}",
            id=number,
            created_at=BEGIN + timedelta(minutes=number * 7 % count),
            metadata={"turn": number // 4, "even": number % 2 == 0},
        )
        for number in range(count)
    ]


def pages(chat: Face, limit: int, **options: Any) -> Iterator[Page[Message]]:
    """All pages, each from the cursor of the one before."""
    cursor = None
    while True:
        page: Page[Message] = chat.list_messages(T1, limit=limit, cursor=cursor, **options)
        yield page
        cursor = page.cursor
        if cursor is None:
            return


class PageContract(Base):
    """list_messages without a search."""

    def test_an_empty_thread_has_an_empty_page(self, chat: Face) -> None:
        page = chat.list_messages(T1)

        assert page == []
        assert isinstance(page, Page)
        assert page.cursor is None

    @pytest.mark.parametrize("newest_first", [False, True])
    @pytest.mark.parametrize("count", [5, 140])
    def test_offset_and_limit_count(self, chat: Face, count: int, newest_first: bool) -> None:
        chat.put_messages(T1, varied(count))
        order = list(range(count))[:: -1 if newest_first else 1]

        for offset in (None, 0, 1, count - 1, count, count + 7):
            for limit in (None, 0, 1, 3, count, count + 7):
                page = chat.list_messages(T1, None, offset, limit, newest_first=newest_first)
                wanted = order[offset or 0 :]
                assert ids(page) == (wanted if limit is None else wanted[:limit])

    def test_a_limit_of_zero_is_an_empty_page(self, chat: Face) -> None:
        chat.put_messages(T1, numbered(3))

        for options in ({}, {"search": "number"}, {"role": "user"}, {"newest_first": True}):
            assert chat.list_messages(T1, limit=0, **options) == []

    @pytest.mark.parametrize("newest_first", [False, True])
    def test_cursors_lead_through_all_messages_once(self, chat: Face, newest_first: bool) -> None:
        chat.put_messages(T1, varied(140))
        order = list(range(140))[:: -1 if newest_first else 1]

        for limit in (1, 3, 70, 140, 200):
            with each(limit):
                found = list(pages(chat, limit, newest_first=newest_first))
                assert [id for page in found for id in ids(page)] == order
                assert all(len(page) == limit for page in found[:-1])
                assert len(found) == -(-140 // limit), "no empty page at the end"

    def test_a_cursor_goes_on_in_order_whatever_is_put_and_deleted_meanwhile(
        self, chat: Face
    ) -> None:
        chat.put_messages(T1, numbered(9))
        page = chat.list_messages(T1, limit=3)
        for id in ("m0", "m2", "m3", "m7"):  # Before it, at its place, after it, and later.
            chat.delete_message(T1, id)
        chat.put_messages(T1, [*said("edited", first=5), *numbered(2, 9), *said("again")])

        rest = chat.list_messages(T1, limit=100, cursor=page.cursor)

        assert ids(page) == ["m0", "m1", "m2"]
        assert ids(rest) == ["m4", "m5", "m6", "m8", "m9", "m10", "m0"]

    def test_a_cursor_misses_nothing_that_takes_the_place_of_what_was_deleted(
        self, chat: Face, opened: Faces
    ) -> None:
        chat.put_messages(T1, numbered(6))
        page = chat.list_messages(T1, limit=5)
        for id in ("m5", "m4", "m3"):
            opened().delete_message(T1, id)
        opened().put_messages(T1, numbered(1, 6))

        assert ids(chat.list_messages(T1, cursor=page.cursor)) == ["m6"]
        assert ids(chat.list_messages(T1, "number", cursor=page.cursor)) == ["m6"]

    def test_a_cursor_goes_on_backwards_whatever_is_put_and_deleted_meanwhile(
        self, chat: Face
    ) -> None:
        chat.put_messages(T1, numbered(9))
        page = chat.list_messages(T1, limit=3, newest_first=True)
        for id in ("m8", "m6", "m5", "m1"):
            chat.delete_message(T1, id)
        chat.put_messages(T1, [*said("edited", first=4), *numbered(2, 9), *said("again", first=6)])

        rest = chat.list_messages(T1, limit=100, cursor=page.cursor, newest_first=True)

        assert ids(page) == ["m8", "m7", "m6"]
        assert ids(rest) == ["m4", "m3", "m2", "m0"]

    def test_a_cursor_of_a_thread_that_was_emptied_gives_nothing(self, chat: Face) -> None:
        chat.put_messages(T1, numbered(4))
        page = chat.list_messages(T1, limit=2)
        chat.clean_thread(T1)

        assert chat.list_messages(T1, limit=2, cursor=page.cursor) == []

    # Filters.

    @pytest.mark.parametrize("newest_first", [False, True])
    def test_filters_narrow_it_down_alone_and_with_a_search(
        self, chat: Face, newest_first: bool
    ) -> None:
        messages = varied(40)
        chat.put_messages(T1, messages)

        for options, search in product(FILTERS, (None, "number")):
            wanted = [one.id for one in messages if passes(one, **options)]
            if newest_first:
                wanted.reverse()
            every = {"search": search, "newest_first": newest_first, **options}
            with each(every):
                assert ids(chat.list_messages(T1, **every)) == wanted
                assert ids(chat.list_messages(T1, offset=2, limit=3, **every)) == wanted[2:5]
                assert [id for page in pages(chat, 9, **every) for id in ids(page)] == wanted

    def test_times_are_from_and_up_to(self, chat: Face) -> None:
        chat.put_messages(T1, [Message("user", "x", id="m", created_at=BEGIN)])
        moment = timedelta(microseconds=1)

        assert ids(chat.list_messages(T1, since=BEGIN)) == ["m"]
        assert ids(chat.list_messages(T1, since=BEGIN + moment)) == []
        assert ids(chat.list_messages(T1, until=BEGIN)) == []
        assert ids(chat.list_messages(T1, until=BEGIN + moment)) == ["m"]

    def test_metadata_are_filtered_by_with_their_types(self, chat: Face) -> None:
        messages = [Message("user", "one", id="a", metadata={"n": 1})]
        chat.put_messages(T1, [*messages, Message("user", "two", id="b", metadata={"n": True})])

        assert ids(chat.list_messages(T1, metadata={"n": 1})) == ["a"]
        assert ids(chat.list_messages(T1, metadata={"n": True})) == ["b"]

    def test_the_metadata_of_a_put_are_filtered_by_too(self, chat: Face) -> None:
        chat.put_messages(T1, said("a"), {"channel": "web"})
        chat.put_messages(T1, said("b", first=1), {"channel": "mail"})

        assert ids(chat.list_messages(T1, metadata={"channel": "mail"})) == ["m1"]
        assert ids(chat.list_messages(T1, "a", metadata={"channel": "mail"})) == []


def passes(
    message: Message,
    role: Any = ROLES,
    since: datetime = BEGIN,
    until: datetime = BEGIN + timedelta(days=1),
    metadata: dict[str, Any] | None = None,
) -> bool:
    """Whether a message matches: a second implementation."""
    return (
        message.role in ([role] if isinstance(role, str) else role)
        and since <= message.created_at < until
        and all(
            message.metadata.get(key, "none") == value for key, value in (metadata or {}).items()
        )
    )


TEXTS = [
    "The Parcel is LATE.",
    "line1\nline2 and \"double\" and 'single' quotes",
    "Stra\u00dfe nach K\u00d6LN",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440",
    "\u6771\u4eac\u306b\u884c\u304d\u307e\u3059",
    "Cafe\u0301 costs 100% of $5_000 \U0001f9c0",
    "NEAR the end, AND not OR",
    "par cels",
]
FOUND: list[tuple[str, list[int]]] = [
    ("parcel", [0]),
    ("PARC", [0]),
    ("par", [0, 7]),
    ("arcel", [0]),
    ("parcel is l", [0]),
    ("late par", []),
    ("parcel absent", []),
    ("line1\nline2", [1]),
    ("line2", [1]),
    ('"double" and \'single', [1]),
    ('"', [1]),
    ("strasse", [2]),
    ("STRASSE", [2]),
    ("k\u00f6ln", [2]),
    ("ko\u0308ln", [2]),
    ("koln", []),
    ("\u043f\u0440\u0438\u0432", [3]),
    ("\u041c\u0418\u0420", [3]),
    ("\u4eac\u306b", [4]),
    ("\u4eac\u6771", []),
    ("caf\u00e9", [5]),
    ("100%", [5]),
    ("\U0001f9c0", [5]),
    ("NEAR", [6]),
    ("near the end, and", [6]),
    ("and not", [6]),
    ("content:parcel", []),
    ("zzz* OR par", []),
    ("", list(range(len(TEXTS)))),
    ("  \n", list(range(len(TEXTS)))),
]
UNSAID = [
    "text", "type", "role", "user", "content", "annotations", "annotations=[]", "TextPart", "id",
    "image", "png", "aGVsbG8gd29ybGQ", "https", "example", "wav", "high", "secret", "lookup",
    "argument", "value", "c77", "Ann", "m0", "metadata", "channel", "web", "created", "None",
]  # fmt: skip
HOSTILE = [
    '"', "'", '""', "*", "a*", '"unclosed', "(", ")", "()", "NOT", "AND OR", "NEAR(", "^a", "-a",
    "a:b", "{a b}:c", "%", "_", "\\", "a\\", "';--", "a & b | !c", ":*", "a <-> b", "$1", "{s}",
    "\0", "a\0b", "\ufffd", "\u0301", "x" * 5000, " ".join(["w"] * 300), "\u200b",
]  # fmt: skip


class SearchContract(Base):
    """list_messages with a search."""

    def test_messages_are_found_by_any_part_of_their_text(self, chat: Face) -> None:
        chat.put_messages(T1, said(*TEXTS))

        for search, wanted in FOUND:
            with each(search):
                assert ids(chat.list_messages(T1, search)) == [f"m{one}" for one in wanted]

    def test_only_what_was_said_is_looked_at(self, chat: Face) -> None:
        chat.put_messages(
            T1,
            [
                Message(
                    "user",
                    [
                        TextPart("hello"),
                        ImagePart("data:image/png;base64,aGVsbG8gd29ybGQ=", detail="high"),
                        ImagePart("https://example.com/secret.png"),
                        AudioPart("aGVsbG8gd29ybGQ=", "wav"),
                        ToolResult("c77", "result of it"),
                    ],
                    id="m0",
                    name="Ann",
                    tool_calls=[ToolCall("c77", "lookup", '{"argument": "value"}')],
                    metadata={"channel": "web"},
                )
            ],
            {"channel": "web"},
        )

        assert [one for one in UNSAID if chat.list_messages(T1, one)] == []
        assert ids(chat.list_messages(T1, "sult of")) == ["m0"]

    def test_no_text_is_a_command(self, chat: Face) -> None:
        chat.put_messages(T1, said("nothing of that", *(f"before {one} after" for one in HOSTILE)))

        for number, search in enumerate(HOSTILE, 1):
            with each(search):
                assert f"m{number}" in ids(chat.list_messages(T1, search))
                assert ids(chat.list_messages(T1, "nothing")) == ["m0"]

    def test_what_was_put_edited_and_deleted_is_so_for_the_next_search(
        self, chat: Face, opened: Faces
    ) -> None:
        other = opened()
        chat.put_messages(T1, said("red apple", "green apple"))
        for one in (chat, other):
            assert ids(one.list_messages(T1, "apple")) == ["m0", "m1"]
        chat.put_messages(T1, said("red pear", "red apple", first=1))
        other.delete_message(T1, "m0")

        for one in (chat, other, opened()):
            assert ids(one.list_messages(T1, "apple")) == ["m2"]
            assert ids(one.list_messages(T1, "red")) == ["m1", "m2"]
            assert ids(one.list_messages(T1, "green")) == []

    def test_a_search_follows_rollbacks_branches_and_cleaning(self, chat: Face) -> None:
        chat.put_messages(T1, said("first word"))
        chat.put_messages(T1, said("second word", first=1))
        assert ids(chat.list_messages(T1, "word")) == ["m0", "m1"]

        chat.timeline(T1).rollback()
        assert ids(chat.list_messages(T1, "word")) == ["m0"]
        chat.timeline(T1).branch("other")
        chat.put_messages(T1, said("third word", first=2))
        assert ids(chat.list_messages(T1, "word")) == ["m0", "m2"]
        assert ids(chat.list_messages({**T1, "branch": "main"}, "word")) == ["m0"]
        chat.clean_thread(T1)
        assert ids(chat.list_messages(T1, "word")) == []
        chat.put_messages(T1, said("fourth word", first=3))
        assert ids(chat.list_messages(T1, "word")) == ["m3"]
        assert ids(chat.list_messages({**T1, "branch": "main"}, "word")) == ["m0"]

    def test_threads_and_users_are_searched_apart(self, chat: Face) -> None:
        chat.put_messages(T1, said("word of t1"))
        chat.put_messages({**T1, "user_id": "ann"}, said("word of ann"))

        assert [one.text for one in chat.list_messages(T1, "word")] == ["word of t1"]
        assert chat.list_messages(T2, "word") == []
        assert chat.list_messages(T2, "") == []
        assert len(chat.list_messages({**T1, "user_id": "ann"}, "word")) == 1
        assert chat.list_messages({**T1, "user_id": "bob"}, "word") == []

    @pytest.mark.parametrize("newest_first", [False, True])
    def test_many_are_found_in_order_page_by_page(self, chat: Face, newest_first: bool) -> None:
        chat.put_messages(T1, numbered(300))
        chat.list_messages(T1, "number")
        chat.put_messages(T1, [*numbered(20, 300), *said("no longer", first=42)])
        wanted = [f"m{one}" for one in range(320) if one != 42][:: -1 if newest_first else 1]

        every: dict[str, Any] = {"search": "numb", "newest_first": newest_first}
        assert ids(chat.list_messages(T1, **every)) == wanted
        assert ids(chat.list_messages(T1, offset=100, limit=7, **every)) == wanted[100:107]
        assert [id for page in pages(chat, 33, **every) for id in ids(page)] == wanted
        assert ids(chat.list_messages(T1, "number 319")) == ["m319"]

    @pytest.mark.parametrize("newest_first", [False, True])
    def test_its_cursor_goes_on_whatever_is_put_and_deleted_meanwhile(
        self, chat: Face, newest_first: bool
    ) -> None:
        chat.put_messages(T1, numbered(9))
        page = chat.list_messages(T1, "number", limit=3, newest_first=newest_first)
        for id in ("m2", "m3", "m5", "m6"):
            chat.delete_message(T1, id)
        chat.put_messages(T1, said("number again", first=9))

        rest = chat.list_messages(
            T1, "number", limit=9, newest_first=newest_first, cursor=page.cursor
        )

        if newest_first:
            assert (ids(page), ids(rest)) == (["m8", "m7", "m6"], ["m4", "m1", "m0"])
        else:
            assert (ids(page), ids(rest)) == (["m0", "m1", "m2"], ["m4", "m7", "m8", "m9"])

    def test_the_index_may_be_lost_at_any_moment(self, chat: Face) -> None:
        chat.put_messages(T1, numbered(200))
        assert len(chat.list_messages(T1, "number")) == 200
        chat.store.text_index().drop("threads/t1/main")

        assert len(chat.list_messages(T1, "number")) == 200
        assert ids(chat.list_messages(T1, "199")) == ["m199"]
