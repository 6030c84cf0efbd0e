"""A search finds what people mean: words by how they begin, in every script."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.threads.search import Query, grams, matches, normalise

FOUND = [
    # A part, in any case.
    ("The quick brown fox", "quick"),
    ("The quick brown fox", "QUI"),
    ("The quick brown fox", "uick br"),
    ("say (hello), world!", "(HELLO), w"),
    ("see foo_bar and e-mail", "bar and e"),
    ("don't panic", "don't"),
    ("version 3.11 of 2026", "3.11 of 202"),
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
    ("Привет, мир", "ВЕТ, МИР"),
    # Scripts without spaces: anywhere.
    ("我在東京塔下面", "東京"),
    ("私は東京タワーへ行きます", "タワー"),
    ("ｱﾊﾟｰﾄ", "アパート"),
    ("สวัสดีครับผม", "ครับ"),
    ("東京Tower", "京tow"),
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
    ("The quick brown fox", "quick dog"),
    ("The quick brown fox", "fox the"),
    ("The quick  brown fox", "quick brown"),
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
    indexed = grams(text)

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
def test_an_index_keeps_short_words_of_letters_that_every_engine_takes(text: str) -> None:
    for one in grams(text * 10):
        assert one.split() == [one]
        assert 0 < len(one) <= 3
        assert all(letter.isalnum() or ord(letter) >= 0x80 for letter in one)


def test_a_long_query_asks_for_a_few_words_of_an_index() -> None:
    text, query = "x" * 100 + "y", Query.parse("x" * 100 + "z")

    assert set(query.prefixes) == {"xxx", "xxz"}
    assert len(Query.parse("".join(map(chr, range(0x4E00, 0x4F00)))).prefixes) == 8
    assert matches(text, "x" * 100)
    assert not query.matches(text)


def test_a_blank_query_asks_no_index() -> None:
    assert Query.parse(" \n").prefixes == ()
    assert Query.parse(" \n").is_empty
    assert not Query.parse("?!").is_empty


def test_every_character_is_one_that_a_search_can_meet() -> None:
    for code in [*range(0x3000), *range(0xF000, 0x10800), *range(0x1F000, 0x1FB00)]:
        if not 0xD800 <= code < 0xE000:
            text = f"a{chr(code)}b"
            assert matches(text, text)
