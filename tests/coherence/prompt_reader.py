"""Reads artifacts out of a prompt, as a careful model would; written apart from what writes them.

It knows the format from its description, and shares no code with `ropewalk.coherence.prompt`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

GONE = "(deleted)"


class Seen(NamedTuple):
    kind: str
    name: str
    version: int
    base: int
    hash: str
    body: str
    check: str


def read_prompt(messages: Sequence[Any], key: bytes) -> dict[str, str]:
    """The text of each artifact that a prompt tells of; `GONE`, or an outline, for others."""
    seen = [block for text in _texts(messages) for block in _split(text)]
    found: dict[str, str] = {}
    for block in seen:
        text = _text(block, seen, key, 0)
        if text is not None:
            found[block.name] = text
    return found


def _texts(messages: Sequence[Any]) -> list[str]:
    found = []
    for message in messages:
        if isinstance(message, dict):
            role, content = message["role"], message["content"]
        else:
            role, content = message.type, message.content
        if role not in ("user", "system", "developer", "human"):
            continue
        parts = [content] if isinstance(content, str) else content
        found += [part if isinstance(part, str) else part.get("text", "") for part in parts]
    return found


def _split(text: str) -> list[Seen]:
    found = []
    if text.startswith("Shared artifacts."):
        text = text.partition("\n")[2]
    while text.startswith("<artifact"):
        head, newline, rest = text.partition("\n")
        opening, _, attributes = head.partition(" id=")
        try:
            name, end = json.JSONDecoder().raw_decode(attributes)
            fields = dict(one.split("=") for one in attributes[end:].rstrip(">").split())
            length = int(fields["chars"])
            version, base = int(fields["version"]), int(fields.get("base", 0))
        except (ValueError, KeyError):
            break
        body, closing = rest[:length], rest[length : length + 12]
        if not newline or closing != "\n</artifact>":
            break
        kind = opening.removeprefix("<artifact").removeprefix("-") or "full"
        found.append(Seen(kind, name, version, base, fields["hash"], body, fields.get("check", "")))
        text = rest[length + 12 :].removeprefix("\n")
    return found


def _text(block: Seen, seen: list[Seen], key: bytes, depth: int) -> str | None:
    if block.kind != "change":
        if not _is_genuine(block, key, ""):
            return None
        return GONE if block.kind == "deleted" else block.body
    if depth > 50:
        return None
    for base in seen:
        if (base.name, base.version) != (block.name, block.base) or base is block:
            continue
        if base.kind not in ("full", "change") or not _is_genuine(block, key, base.hash):
            continue
        text = _text(base, seen, key, depth + 1)
        if text is not None:
            assert _hash(text) == base.hash
            made = _patched(text, block.body)
            assert _hash(made) == block.hash
            return made
    return None


def _is_genuine(block: Seen, key: bytes, base_hash: str) -> bool:
    said = [block.kind, block.name, block.version, block.hash, block.base, base_hash]
    data = (json.dumps(said) + "\n" + block.body).encode()
    return hmac.new(key, data, hashlib.sha256).hexdigest()[:16] == block.check


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _patched(text: str, change: str) -> str:
    if change.startswith("["):
        value = json.loads(text)
        for one in json.loads(change):
            value = _operated(value, one)
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    old, made, at = text.split("\n"), list[str](), 0
    for line in change.split("\n"):
        if line.startswith("@@ -"):
            start, _, count = line[4:].partition(" ")[0].partition(",")
            target = int(start) - (count != "0")
            made += old[at:target]
            at = target
        elif line.startswith("-"):
            assert old[at] == line[1:]
            at += 1
        elif line.startswith("+"):
            made.append(line[1:])
        else:
            assert old[at] == line[1:]
            made.append(old[at])
            at += 1
    return "\n".join(made + old[at:])


def _operated(value: Any, operation: dict[str, Any]) -> Any:
    path = [one.replace("~1", "/").replace("~0", "~") for one in operation["path"].split("/")[1:]]
    if not path:
        return operation["value"]
    inner = value
    for one in path[:-1]:
        inner = inner[int(one)] if isinstance(inner, list) else inner[one]
    if isinstance(inner, list):
        at = int(path[-1])
        inner[at : at + (operation["op"] != "add")] = (
            [] if operation["op"] == "remove" else [operation["value"]]
        )
    elif operation["op"] == "remove":
        inner.pop(path[-1])
    else:
        inner[path[-1]] = operation["value"]
    return value
