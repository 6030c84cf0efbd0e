"""A search finds what people mean: words by how they begin, in every script."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.threads.search import LONGEST, Query, matches, normalise, words

FOUND = [
    # How words begin, in any case and order.
    ("The quick brown fox", "quick"),
    ("The quick brown fox", "QUI"),
    ("The quick brown fox", "fox the"),
    ("The quick brown fox", "  br\tqu\n"),
    ("say (hello), world!", "hello world"),
    ("see foo_bar and e-mail", "bar mail"),
    ("don't panic", "don't"),
    ("version 3.11 of 2026", "3.11 202"),
    # Case is more than ASCII.
    ("Straße nach Süden", "STRASSE"),
    ("STRASSE", "straße"),
    ("ΟΔΟΣ", "οδος"),
    ("οδός", "ΟΔΌΣ"),
    ("ﬁne ﬂow", "FINE flo"),
    ("Ｆｕｌｌ width", "full"),
    ("x² + y²", "X2"),
    # The four letters i of Turkish.
    ("İstanbul'a gidiyorum", "istanbul"),
    ("ISPARTA", "ısparta"),
    ("ısparta", "ISPARTA"),
    ("istanbul", "İSTANBUL"),
    # Accents, in one code point or two.
    ("café au lait", "cafe\u0301"),
    ("cafe\u0301 au lait", "CAFÉ"),
    ("Việt Nam", unicodedata.normalize("NFD", "việt")),
    ("x\u0331y", "x\u0331"),
    # Scripts with marks that belong to their letters.
    ("हिन्दी में लिखा", "हिन्दी"),
    ("हिन्दी में लिखा", "लि"),
    ("السلام عليكم", "عليكم"),
    ("ﻣﺮﺣﺒﺎ", "مرحبا"),
    ("שָׁלוֹם עולם", "שָׁל"),
    ("안녕하세요 세계", "안녕"),
    ("안녕하세요", unicodedata.normalize("NFD", "안녕")),
    ("Привет, мир", "ПРИ МИР"),
    # Scripts without spaces: anywhere.
    ("我在東京塔下面", "東京"),
    ("私は東京タワーへ行きます", "タワー"),
    ("ｱﾊﾟｰﾄ", "アパート"),
    ("สวัสดีครับผม", "ครับ"),
    ("東京Tower", "tower 東京"),
    ("ភាសាខ្មែរ", "ខ្មែរ"),
    ("မြန်မာဘာသာ", "ဘာသာ"),
    ("ພາສາລາວ", "ລາວ"),
    # Emoji and other symbols.
    ("well done 👍", "👍"),
    ("well done 👍🏽", "👍"),
    ("love ❤️", "❤"),
    ("love ❤", "❤️"),
    ("a 👩‍💻 at work", "👩‍💻"),
    ("from 🇩🇪", "🇩🇪"),
    ("5 °C", "°c"),
    # What nobody sees.
    ("Donau\u00addampf", "donaudampf"),
    ("می\u200cخواهم", "میخواهم"),
    ("left\u200e right", "left"),
    # A query without words is looked for as it is.
    ("what?! no", "?!"),
    ("a -> b", "->"),
    ("a -> b", " -> "),
    ("C++ is", "++"),
    # An empty one finds everything.
    ("anything", ""),
    ("anything", " \n\t"),
    ("", ""),
    ("anything", "\u200b"),
]

NOT_FOUND = [
    ("The quick brown fox", "uick"),
    ("The quick brown fox", "quick dog"),
    ("The quick brown fox", "quickly"),
    ("quick brown", "quickbrown"),
    ("", "a"),
    ("café", "cafe"),
    ("我在東京塔下面", "京東"),
    ("世、界", "世界"),
    ("well done 👍", "👎"),
    ("from 🇩🇪", "🇪🇩"),
    ("what? no", "?!"),
    ("plain", "->"),
    ("हिन्दी", "न्दी"),
]


@pytest.mark.parametrize(("text", "query"), FOUND)
def test_a_text_is_found(text: str, query: str) -> None:
    assert matches(text, query)


@pytest.mark.parametrize(("text", "query"), NOT_FOUND)
def test_a_text_is_not_found(text: str, query: str) -> None:
    assert not matches(text, query)


_TEXTS = st.text(max_size=30) | st.text(
    "aAbBéÉßẞiİıIſſ'_-?東京タน👍🏽\u0301\u00ad 12²", max_size=30
)


@given(text=_TEXTS, query=_TEXTS)
def test_an_index_misses_nothing(text: str, query: str) -> None:
    parsed = Query.parse(query)
    indexed = words(text)

    if parsed.matches(text):
        for prefix in parsed.prefixes:
            assert any(word.startswith(prefix) for word in indexed)


@given(text=_TEXTS)
def test_a_text_finds_itself_however_it_is_written(text: str) -> None:
    for other in (text, text.upper(), text.lower(), unicodedata.normalize("NFD", text)):
        if normalise(other) == normalise(text):
            assert matches(text, other)
    assert matches(text, text)


@given(text=_TEXTS)
def test_what_is_normalised_stays_so(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(text=_TEXTS)
def test_words_hold_no_spaces_and_are_short(text: str) -> None:
    for word in words(text * 10):
        assert word.split() == [word]
        assert 0 < len(word) <= LONGEST
        assert len(word.encode()) <= 4 * LONGEST


def test_long_words_are_found_by_all_their_letters() -> None:
    text, query = "x" * 100 + "y", Query.parse("x" * 100 + "z")

    assert query.prefixes == ("x" * LONGEST,)
    assert words(text) == {"x" * LONGEST}
    assert matches(text, "x" * 100)
    assert not query.matches(text)


def test_a_query_without_words_asks_no_index() -> None:
    assert Query.parse("?!").prefixes == ()
    assert not Query.parse("?!").is_empty
    assert Query.parse(" \n").is_empty


def test_every_character_is_one_that_a_search_can_meet() -> None:
    for code in [*range(0x3000), *range(0xF000, 0x10800), *range(0x1F000, 0x1FB00)]:
        if not 0xD800 <= code < 0xE000:
            text = f"a{chr(code)}b"
            assert matches(text, text)


def test_a_query_of_very_many_words_means_the_same_as_one_of_few() -> None:
    said = " ".join(f"word{number}" for number in range(400))
    asked = [f"word{number}" for number in range(50)]
    found = [
        matches(said, " ".join([*asked, one])) for one in ("wor", "word399", "word3999", "zz", "a")
    ]

    assert found == [True, True, False, False, False]
    assert [matches(said, one) for one in ("word3999", "zz", "a")] == [False, False, False]
