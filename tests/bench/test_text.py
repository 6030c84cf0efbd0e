from __future__ import annotations

import zstandard

from bench._text import Text, document, message, payload_bytes, record, section

KILOBYTE = 1000


def test_the_same_seed_gives_the_same_text_and_another_seed_another() -> None:
    assert Text(7).prose(5000) == Text(7).prose(5000)
    assert Text(7).prose(5000) != Text(8).prose(5000)


def test_prose_has_the_size_asked_for_and_is_plain() -> None:
    text = Text(1)

    assert [len(text.prose(size).encode()) for size in (0, 1, 999, 10_000)] == [0, 1, 999, 10_000]
    assert text.prose(10_000).isascii()


def test_prose_compresses_about_as_well_as_real_prose() -> None:
    text = Text(1)
    pieces = [text.prose(KILOBYTE).encode() for _ in range(500)]
    squeeze = zstandard.ZstdCompressor(level=3).compress
    raw = len(pieces) * KILOBYTE

    alone = raw / sum(len(squeeze(piece)) for piece in pieces)
    whole = raw / len(squeeze(b"".join(pieces)))

    assert 1.5 < alone < 1.9
    assert 2.2 < whole < 3.2


def test_values_have_about_the_size_they_are_named_for() -> None:
    text = Text(1)

    assert 950 < payload_bytes(message(text, 1)) < 1100
    assert 10_000 < payload_bytes(document(text, 1)) < 10_500
    records = [record(text, number) for number in range(1000)]
    assert 80_000 < payload_bytes(records) < 120_000
    assert 90_000 < payload_bytes(section(text, 1)) < 110_000
