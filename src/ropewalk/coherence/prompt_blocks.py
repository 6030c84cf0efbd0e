"""Artifacts as blocks of text in messages, and what of them stands in a list of messages.

A block is framed by its length, and carries a tag: the artifact, its version, a hash of the text
and a keyed check over all of it. What an agent has in front of it is read off the messages that
are about to be sent, and nowhere else. A block counts if

- it stands where a view writes: at the start of a part of text of a message of the user or the
  system, or after another block there;
- its check is that of its text as it stands there. So a part that was cut, edited or imitated
  does not count, nor does what is quoted in an artifact, by a tool or by the model;
- it is a change, and the text that it changes is there, too, down to a block of the whole text.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["full", "change", "outline", "deleted"]

INTRODUCTION: Final = (
    "Shared artifacts. The last block about an artifact says what it is now; a change is a patch "
    "(a unified diff, or JSON Patch) of the version that it names as its base.\n"
)
_TAG: Final = re.compile(
    r"<artifact(?:-(?P<kind>change|outline|deleted))? "
    r'id=(?P<id>"(?:[^"\\\n]|\\.)*") version=(?P<version>[1-9]\d{0,17})'
    r"(?: base=(?P<base>[1-9]\d{0,17}))? "
    r"hash=(?P<hash>[0-9a-f]{12}) chars=(?P<chars>\d{1,12}) check=(?P<check>[0-9a-f]{16})>\n"
)
_END: Final = "\n</artifact>"
_ROLES: Final = frozenset({"user", "human", "system", "developer"})
_TEXTS: Final = frozenset({"text", "input_text"})


class Block(NamedTuple):
    """A block as it stands in a message."""

    kind: Kind
    id: str
    version: int
    hash: str
    """Of the text that the artifact has with this block; of the version for an outline."""
    body: str
    base: int = 0
    """The version that a change is a patch of."""
    check: str = ""


class Place(NamedTuple):
    """Where a part of text stands in a list of messages."""

    message: int
    part: int


def hash_of(text: str) -> str:
    """The hash of a text, as tags carry it."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def write_block(block: Block, key: bytes, base_hash: str = "") -> str:
    """A block as text; a change needs the hash of the text that it changes."""
    kind = "" if block.kind == "full" else f"-{block.kind}"
    base = f" base={block.base}" if block.base else ""
    check = _check(block, key, base_hash)
    id = json.dumps(block.id, ensure_ascii=False)
    return (
        f"<artifact{kind} id={id} version={block.version}{base} hash={block.hash} "
        f"chars={len(block.body)} check={check}>\n{block.body}{_END}"
    )


def _check(block: Block, key: bytes, base_hash: str) -> str:
    said = (block.kind, block.id, block.version, block.hash, block.base, base_hash)
    text = f"{json.dumps(said)}\n{block.body}".encode("utf-8", "surrogatepass")
    return hmac.digest(key, text, "sha256").hex()[:16]


class Standing:
    """The blocks that count in a list of messages, in the order in which they stand there."""

    def __init__(self, messages: Sequence[Any], key: bytes) -> None:
        self.places: dict[Place, list[tuple[Block, int, int]]] = {}
        """The blocks of each part, with where they begin and end."""
        self._whole: dict[tuple[str, int, str], list[Block]] = {}
        """The chain from a whole text to each version that can be read here."""
        self.last: dict[str, Block] = {}
        found = [
            (place, block, start, end)
            for place, text in parts_of(messages)
            for block, start, end in _read(text)
        ]
        counted = self._count([block for _, block, _, _ in found], key)
        for place, block, start, end in found:
            if id(block) in counted:
                self.places.setdefault(place, []).append((block, start, end))
                self.last[block.id] = block

    def chain(self, block: Block) -> list[Block] | None:
        """The blocks that a block's text is made of, the whole text first; None for others."""
        if block.kind not in ("full", "change"):
            return None
        return self._whole.get((block.id, block.version, block.hash))

    def versions(self, id: str) -> list[Block]:
        """The last block of each version of an artifact that can be read here, newest first."""
        found = [chain[-1] for (name, _, _), chain in self._whole.items() if name == id]
        return sorted(found, key=lambda block: -block.version)

    def _count(self, blocks: list[Block], key: bytes) -> set[int]:
        """The identities of the blocks that count; changes count from their base on."""
        counted: set[int] = set()
        waiting: dict[tuple[str, int], list[Block]] = {}
        ready: list[Block] = []
        for block in blocks:
            if block.kind == "change":
                waiting.setdefault((block.id, block.base), []).append(block)
            elif hmac.compare_digest(_check(block, key, ""), block.check):
                counted.add(id(block))
                if block.kind == "full":
                    self._whole.setdefault((block.id, block.version, block.hash), [block])
                    ready.append(block)
        while ready:
            base = ready.pop()
            for block in waiting.get((base.id, base.version), ()):
                if id(block) in counted:
                    continue
                if hmac.compare_digest(_check(block, key, base.hash), block.check):
                    counted.add(id(block))
                    name = (block.id, block.version, block.hash)
                    if name not in self._whole:
                        chain = self._whole[base.id, base.version, base.hash]
                        self._whole[name] = [*chain, block]
                        ready.append(block)
        return counted


def _read(text: str) -> Iterator[tuple[Block, int, int]]:
    """The blocks at the start of a part, one after the other, with where they begin and end."""
    position = len(INTRODUCTION) if text.startswith(INTRODUCTION) else 0
    while (found := _TAG.match(text, position)) is not None:
        start = found.end()
        end = start + int(found["chars"])
        if text[end : end + len(_END)] != _END:
            return
        try:
            name = json.loads(found["id"])
        except ValueError:
            return
        kind: Any = found["kind"] or "full"
        base = int(found["base"] or 0)
        if (kind == "change") != bool(base):
            return
        end_of_block = end + len(_END)
        yield (
            Block(
                kind, name, int(found["version"]), found["hash"], text[start:end], base,
                found["check"],
            ),
            position,
            end_of_block,
        )  # fmt: skip
        position = end_of_block + (text[end_of_block : end_of_block + 1] == "\n")


# Messages: dicts of OpenAI's and Anthropic's interfaces, and objects like LangChain's.


def role_of(message: Any) -> str:
    """Who a message is from."""
    if isinstance(message, Mapping):
        return str(message.get("role") or message.get("type") or "")
    if isinstance(message, tuple) and len(message) == 2:
        return str(message[0])
    return str(getattr(message, "role", None) or getattr(message, "type", ""))


def content_of(message: Any) -> Any:
    """What a message says: a text, or a list of parts."""
    if isinstance(message, Mapping):
        return message.get("content")
    if isinstance(message, tuple) and len(message) == 2:
        return message[1]
    return getattr(message, "content", None)


def text_of(part: Any) -> str | None:
    """The text of a part; None if it is none."""
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type") in _TEXTS:
        text = part.get("text")
        return text if isinstance(text, str) else None
    return None


def parts_of(messages: Iterable[Any]) -> Iterator[tuple[Place, str]]:
    """The parts of text in which blocks may stand."""
    for number, message in enumerate(messages):
        if role_of(message) not in _ROLES:
            continue
        content = content_of(message)
        for index, part in enumerate([content] if isinstance(content, str) else content or ()):
            text = text_of(part)
            if text is not None:
                yield Place(number, index), text


def all_text(message: Any) -> str:
    """Everything that a message says, calls and results of tools included, to be counted."""
    content = content_of(message)
    parts = [content] if isinstance(content, str) else list(content or ())
    texts = [text_of(part) for part in parts]
    said = [
        json.dumps(part, default=str) if text is None else text
        for part, text in zip(parts, texts, strict=True)
    ]
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    return "\n".join([*said, json.dumps(calls, default=str)] if calls else said)
