"""What a bus carries: one spelling, and nothing hostile gets in."""

from __future__ import annotations

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.coherence import Invalidation, Receiver, space_topic, topic_of
from ropewalk.coherence.bus import MAX_MESSAGE_BYTES
from ropewalk.errors import FormatError, InvalidName
from ropewalk.store import space_name

MESSAGE = Invalidation("plan", 7, 5, 12, "alice", "instance-1", b"content")

numbers = st.integers(0, 2**40)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def invalidations(draw: st.DrawFn) -> Invalidation:
    since = draw(numbers)
    return Invalidation(
        draw(texts.filter(bool)),
        since + draw(st.integers(1, 100)),
        since,
        draw(numbers),
        draw(texts),
        draw(texts),
        draw(st.none() | st.binary(max_size=50)),
    )


def spelled(*record: object, format: int = 1) -> bytes:
    return bytes([format]) + ormsgpack.packb(list(record))


@given(invalidations())
def test_a_message_comes_back_as_it_was(message: Invalidation) -> None:
    assert Invalidation.decode(message.encode()) == message


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_the_one_spelling(data: bytes) -> None:
    try:
        found = Invalidation.decode(data)
    except FormatError:
        return

    assert found.encode() == data


@given(invalidations(), st.data())
def test_a_changed_byte_is_refused_or_another_message(
    message: Invalidation, data: st.DataObject
) -> None:
    spelling = bytearray(message.encode())
    at = data.draw(st.integers(0, len(spelling) - 1))
    spelling[at] ^= data.draw(st.integers(1, 255))
    try:
        found = Invalidation.decode(bytes(spelling))
    except FormatError:
        return

    assert found != message
    assert found.encode() == bytes(spelling)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        MESSAGE.encode()[:-1],
        MESSAGE.encode() + b"\0",
        b"\x02" + MESSAGE.encode()[1:],
        spelled("plan", 7, 5, 12, "alice", "i"),
        spelled("plan", 7, 5, 12, "alice", "i", None, None),
        spelled("plan", 7, 7, 12, "alice", "i", None),
        spelled("plan", 7, -1, 12, "alice", "i", None),
        spelled("plan", 7, 5, -1, "alice", "i", None),
        spelled("", 7, 5, 12, "alice", "i", None),
        spelled("plan", True, 0, 12, "alice", "i", None),
        spelled("plan", 7.0, 5, 12, "alice", "i", None),
        spelled("plan", 7, 5, 12, None, "i", None),
        spelled("plan", 7, 5, 12, "alice", "i", "text"),
        b"\x01\x97\xa4plan\xcc\x07\x05\x0c\xa5alice\xa1i\xc0",  # 7 in two bytes
        b"\x01\xdd\xff\xff\xff\xff",  # a list that is said to be very long
        b"\x01" + b"\x91" * 100_000,  # very deep
        b"\x01" + bytes(MAX_MESSAGE_BYTES),
    ],
)
def test_a_hostile_message_is_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        Invalidation.decode(data)


def test_two_messages_become_one_that_says_what_both_said() -> None:
    older = Invalidation("plan", 4, 3, 10, "alice", "i")
    newer = Invalidation("plan", 6, 5, 11, "bob", "i", b"new")
    merged = Invalidation("plan", 6, 3, 11, "bob", "i", b"new")

    assert older.merged(newer) == merged
    assert newer.merged(older) == merged


def test_a_receiver_drops_and_counts_what_is_no_message() -> None:
    heard: list[Invalidation] = []
    receiver = Receiver(heard.append)
    for data in (b"junk", MESSAGE.encode(), b""):
        receiver(data)

    assert heard == [MESSAGE]
    assert receiver.dropped == 2


def test_each_artifact_and_each_space_has_a_topic_of_its_own() -> None:
    spaces = [space_name("coherence", name) for name in ("a", "a/b", "b", "A")]
    names = ["a", "b", "a/b", "a.b", "a%2Fb", "A", "ä", "a b"]
    topics = [topic_of(space, name) for space in spaces for name in names]
    topics += map(space_topic, spaces)

    assert len(set(topics)) == len(topics)


def test_an_artifact_without_a_name_has_no_topic() -> None:
    with pytest.raises(InvalidName):
        topic_of(space_name("coherence", "a"), "")
