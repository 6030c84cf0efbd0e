"""What a search means: which words a text has, and which texts a query matches. Pure.

`Query.matches` is the one meaning. An index of words only gives candidates, so every engine
finds the same.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from dataclasses import dataclass
from itertools import groupby

LONGEST = 50
"""As many characters of a word are indexed; so many take at most 200 bytes."""

_FEW = 32  # Words that are looked for one by one; for more, those of the text are sorted.

# Nobody sees these: soft hyphens, joiners, marks of direction, variation selectors.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]+"
)

_LETTERS = frozenset("LNM")
_SYMBOLS = frozenset({"So", "Sk"})

# Scripts that put no spaces between words: Thai, Lao, Myanmar, Khmer, Han, Hiragana, Katakana.
_SPACELESS = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x2FDF), (0x3005, 0x3007),
    (0x3021, 0x3029), (0x3038, 0x303B), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F), (0xF900, 0xFAFF),
    (0x1B000, 0x1B16F), (0x20000, 0x3FFFF),
)  # fmt: skip


def normalise(text: str) -> str:
    """A text in which differences that a search passes over are gone.

    Those of case (also German sharp s, and the four Turkish letters i, which become one), of
    width and ligatures, and of accents that are characters of their own. Accents remain.
    """
    if text.isascii():
        return text.lower()
    text = _UNSEEN.sub("", text)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", text).casefold())
    folded = folded.replace("i\u0307", "i").replace("\u0131", "i")
    return _UNSEEN.sub("", unicodedata.normalize("NFKC", folded.casefold()))


def words(text: str) -> set[str]:
    """The words of a text as an index keeps them."""
    found = set(_spaced(normalise(text)).split())
    if max(map(len, found), default=0) > LONGEST:
        return {word[:LONGEST] for word in found}
    return found


@dataclass(frozen=True, slots=True)
class Query:
    """What somebody looks for, taken apart.

    A text matches if for every word of the query one of its own begins so. In scripts
    without spaces, and of symbols such as emoji, the characters that stand together in the
    query stand together somewhere in the text. A query without any of these is looked for
    as it is, and an empty one matches everything.
    """

    beginnings: tuple[str, ...]
    runs: tuple[str, ...]
    literal: str

    @classmethod
    def parse(cls, text: str) -> Query:
        """Take a query apart. Every text is one."""
        normal = normalise(text)
        beginnings: dict[str, None] = {}
        runs: dict[str, None] = {}
        for kind, characters in groupby(normal, key=_kind):
            if kind:
                (beginnings if kind == _WORD else runs)["".join(characters)] = None
        literal = "" if beginnings or runs else normal.strip()
        return cls(tuple(beginnings), tuple(runs), literal)

    @property
    def is_empty(self) -> bool:
        """Whether it matches everything."""
        return not (self.beginnings or self.runs or self.literal)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What words of an index must begin with; none if only a look at every text helps.

        Those that tend to be rare come first: numbers, then long ones.
        """
        found = {one[:LONGEST] for one in self.beginnings} | set("".join(self.runs))
        return tuple(sorted(found, key=lambda one: (-one.isnumeric() * len(one), -len(one), one)))

    def matches(self, text: str) -> bool:
        """Whether a text has what is looked for."""
        normal = normalise(text)
        if self.beginnings:
            spaced = " " + _spaced(normal)
            if not _begin_so(spaced, self.beginnings):
                return False
        return self.literal in normal and all(run in normal for run in self.runs)


def _begin_so(spaced: str, beginnings: tuple[str, ...]) -> bool:
    if len(beginnings) <= _FEW:
        return all(f" {one}" in spaced for one in beginnings)
    known = sorted(set(spaced.split()))
    known.append("")  # Whatever would come behind the last one begins with nothing.
    return all(
        known[bisect_left(known, one, 0, len(known) - 1)].startswith(one) for one in beginnings
    )


def matches(text: str, query: str) -> bool:
    """Whether a text has what a query looks for."""
    return Query.parse(query).matches(text)


_WORD = 1
_ALONE = 2


def _kind(character: str) -> int:
    category = unicodedata.category(character)
    if category[0] in _LETTERS:
        return _ALONE if _is_spaceless(ord(character)) else _WORD
    # Modifiers of emoji are symbols; an accent that stands alone in ASCII is punctuation.
    return _ALONE if category in _SYMBOLS and ord(character) > 0xFF else 0


def _is_spaceless(code: int) -> bool:
    return code >= 0x0E00 and any(low <= code <= high for low, high in _SPACELESS)


class _Spaces(dict[int, str | int]):
    """How each character is written when words have spaces between them; found on first use."""

    def __missing__(self, code: int) -> str | int:
        kind = _kind(chr(code))
        written: str | int = code if kind == _WORD else f" {chr(code)} " if kind else " "
        if len(self) < 65_536:
            self[code] = written
        return written


_spaces = _Spaces()


def _spaced(normal: str) -> str:
    return normal.translate(_spaces)
