"""All text of the benchmarks, from one seeded generator, and the values that are made of it."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import accumulate
from typing import Any

from bench import _words as words

# D determiner, A adjective, N noun, V verb, P preposition, S subject, X auxiliary,
# R adverb, L link, M name, 0 number, I identifier
_PATTERNS = (
    "DNVDANPDN",
    "SXVDNPDN",
    "DANVPDN",
    "SXRVDNLSXVDN",
    "LDNVSXVDAN",
    "PDNSXVDN",
    "MVDNPN",
    "SXVDNPDNPDN",
    "NPDNXADLDNVR",
    "DNXRALSXVPN",
    "MXV0NPDAN",
    "RSXVDNLDNVDAN",
    "DANIVPDN",
    "M0VDNI",
)
_BATCH = 2048
_ECHOES = 10
_ECHO_CHANCE = 0.22


def _plural(noun: str) -> str:
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeou":
        return noun[:-1] + "ies"
    return noun + "s"


def _forms(verb: str) -> list[str]:
    stem = verb[:-1] if verb.endswith("e") else verb
    if verb.endswith("y") and verb[-2] not in "aeou":
        return [verb, verb[:-1] + "ied", verb + "ing", verb[:-1] + "ies"]
    return [verb, stem + "ed", stem + "ing", _plural(verb)]


def _derived() -> list[str]:
    made = [verb[:-1] if verb.endswith("e") else verb for verb in words.VERBS]
    endings = ("er", "able", "ers")
    plain = [adjective for adjective in words.ADJECTIVES if adjective[-1] not in "eyl"]
    return [stem + ending for stem in made for ending in endings] + [
        adjective + "ness" for adjective in plain
    ]


def _pools() -> dict[str, list[str]]:
    nouns = list(dict.fromkeys(words.NOUNS))
    verbs = list(dict.fromkeys(words.VERBS))
    adjectives = list(dict.fromkeys(words.ADJECTIVES))
    return {
        "D": words.DETERMINERS,
        "A": adjectives + ["un" + adjective for adjective in adjectives],
        "N": [form for noun in nouns for form in (noun, _plural(noun))] + _derived(),
        "V": [form for verb in verbs for form in _forms(verb)] + ["re" + verb for verb in verbs],
        "P": words.PREPOSITIONS,
        "S": words.SUBJECTS,
        "X": words.AUXILIARIES,
        "R": words.ADVERBS,
        "L": words.LINKS,
        "M": words.NAMES,
        "0": [str(number) for number in range(2, 2000)],
        "I": [f"{word[:3]}-{at * 7919 % 99991:05}" for at, word in enumerate(nouns * 12)],
    }


def _zipf(count: int) -> list[float]:
    # The shift keeps the first ranks from swallowing the rest.
    return list(accumulate(1.0 / (rank + 6) for rank in range(count)))


class Text:
    """An endless, reproducible supply of prose: the same seed gives the same text."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._draws = {kind: self._draw(pool) for kind, pool in _pools().items()}
        self._echoes: list[str] = []

    def _draw(self, pool: list[str]) -> Iterator[str]:
        weights = _zipf(len(pool))
        while True:
            yield from self.random.choices(pool, cum_weights=weights, k=_BATCH)

    def _noun(self) -> str:
        if self._echoes and self.random.random() < _ECHO_CHANCE:
            return self.random.choice(self._echoes)
        noun = next(self._draws["N"])
        self._echoes = [noun, *self._echoes[: _ECHOES - 1]]
        return noun

    def sentence(self) -> str:
        """One sentence with its full stop."""
        pattern = self.random.choice(_PATTERNS)
        found = [self._noun() if kind == "N" else next(self._draws[kind]) for kind in pattern]
        at = pattern.find("L", 1)
        if at > 0:
            found[at - 1] += ","
        found[0] = found[0][0].upper() + found[0][1:]
        return " ".join(found) + self.random.choice("....?!")

    def prose(self, size: int) -> str:
        """Prose of exactly `size` characters, all of them ASCII."""
        parts: list[str] = []
        length = 0
        while length <= size:
            parts.append(self.sentence())
            length += len(parts[-1]) + 1
        return " ".join(parts)[:size]

    def title(self) -> str:
        """A few words."""
        return f"{next(self._draws['A'])} {next(self._draws['N'])}".capitalize()


class Noise(Text):
    """The same with random base64 instead of prose, of which a compressor saves a quarter."""

    def prose(self, size: int) -> str:
        return base64.b64encode(self.random.randbytes(size)).decode()[:size]


def payload_bytes(value: Any) -> int:
    """The raw size of a value: its compact JSON, whatever a side stores."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def message(text: Text, number: int) -> dict[str, Any]:
    """One chat message of about 1 KB."""
    role = "assistant" if number % 2 else "user"
    return {"id": f"message-{number}", "role": role, "content": text.prose(950)}


def short_message(text: Text, number: int) -> dict[str, Any]:
    """One chat message of about 570 bytes."""
    role = "assistant" if number % 2 else "user"
    return {"id": f"message-{number}", "role": role, "content": text.prose(520)}


def document(text: Text, number: int) -> dict[str, Any]:
    """One document of about 10 KB."""
    meta = {"author": text.title(), "reviewed": False, "tags": [text.title(), text.title()]}
    return {"id": number, "title": text.title(), "text": text.prose(10_000), "meta": meta}


def record(text: Text, number: int) -> dict[str, Any]:
    """One small dict of about 80 bytes."""
    score = round(text.random.random() * 100, 3)
    tags = [text.title(), text.title()]
    return {"id": number, "name": text.title(), "score": score, "tags": tags}


def small_state(text: Text) -> dict[str, Any]:
    """The state of an agent, about 600 bytes, with a number of the step."""
    return {
        "task": text.title(),
        "step": 0,
        "stage": "search",
        "notes": [text.prose(150), text.prose(150)],
        "scores": {text.title(): round(text.random.random(), 3) for _ in range(6)},
        "done": False,
    }


def section(text: Text, number: int) -> dict[str, Any]:
    """One section of about 100 KB: a dict of lists of dicts of lists."""
    return {
        "id": f"section-{number}",
        "title": text.title(),
        "parts": [_part(text, at) for at in range(20)],
    }


def _part(text: Text, number: int) -> dict[str, Any]:
    steps = [{"at": at, "done": False, "note": text.prose(460)} for at in range(10)]
    return {"name": text.title(), "rank": number, "owner": {"name": text.title()}, "steps": steps}


Make = Callable[[int, int], dict[str, Any]]
"""An artifact of about so many bytes; the second number makes it differ from the others."""

SIZES: Mapping[str, int] = {"200": 200, "4k": 4_000, "40k": 40_000}
"""What a figure calls an artifact, and its bytes."""
_OVERHEAD, _RECORD = 60, 88


def text(size: int, number: int) -> dict[str, Any]:
    """A document: nearly all of it is one text."""
    length = size - _OVERHEAD
    begin = number * 97 % length
    return {"step": number, "title": "A document", "text": _prose(2 * length)[begin:][:length]}


@cache
def _prose(length: int) -> str:
    return Text(1).prose(length)


def fields(size: int, number: int) -> dict[str, Any]:
    """A plan: records of four small fields."""
    made = Text(number)
    return {"step": number, "items": [record(made, at) for at in range(size // _RECORD)]}
