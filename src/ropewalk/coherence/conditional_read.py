"""The conditional read: what an agent lacks of an artifact, if it has some of its versions.

As the entity tags of HTTP: who says what it has, is given only what has changed. The versions that
a patch can be made against are those in the history of the artifact; nothing is kept beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from ropewalk.coherence.patches import JsonPatch, Shown, apply, json_text, patch, shown
from ropewalk.coherence.protocol import Artifact, Content
from ropewalk.errors import InvalidInput

Have: TypeAlias = "int | tuple[int, str]"
"""A version that an agent has, with its `content_hash` if it may be of another history."""

Older: TypeAlias = Callable[[int], "Content | None"]
"""The content of an older version; None if it is not in the history any more."""


@dataclass(frozen=True, slots=True)
class NotModified:
    """The agent has the newest version."""

    artifact: Artifact

    @property
    def version(self) -> int:
        """The number of the newest version."""
        return self.artifact.version


@dataclass(frozen=True, slots=True)
class Delta:
    """What changed since a version that the agent has."""

    artifact: Artifact
    base: int
    """The number of the version that the patch is made against."""
    patch: str | JsonPatch
    """A unified diff if the artifact is a text, operations of RFC 6902 if it is data."""

    @property
    def version(self) -> int:
        """The number of the newest version."""
        return self.artifact.version

    def apply(self, base: Any) -> Any:
        """The newest version, made from the value of the base; lists for tuples."""
        change = self.patch if isinstance(self.patch, str) else json.dumps(self.patch)
        made = apply(shown(base), change)
        return json.loads(made.text) if made.is_data else made.text


@dataclass(frozen=True, slots=True)
class Full:
    """The newest version as a whole: the agent has nothing that a patch would be smaller for."""

    artifact: Artifact

    @property
    def version(self) -> int:
        """The number of the newest version."""
        return self.artifact.version

    @property
    def value(self) -> Any:
        """What the artifact holds."""
        return self.artifact.value

    @property
    def sections(self) -> list[Section]:
        """The parts of what it holds, for a reader who needs only some of them."""
        return sections_of(shown(self.artifact.value))


Answer: TypeAlias = "NotModified | Delta | Full"


def answer(found: Artifact, have: Iterable[Have], older: Older) -> Answer:
    """What somebody who has some versions lacks of the newest one."""
    versions = _checked(have)
    if found.version in versions and _is(found.content, versions[found.version]):
        return NotModified(found)
    if found.degraded:
        return Full(found)  # The history is where the engine is.
    try:
        new = shown(found.content.fresh())
    except InvalidInput:
        return Full(found)
    for number in sorted((one for one in versions if one < found.version), reverse=True):
        content = older(number)
        if content is None or not _is(content, versions[number]):
            continue
        made = _patched(content, new)
        if made is not None:
            return Delta(found, number, json.loads(made) if new.is_data else made)
    return Full(found)


def _patched(base: Content, new: Shown) -> str | None:
    try:
        return patch(shown(base.fresh()), new)
    except InvalidInput:
        return None


def _checked(have: Iterable[Have]) -> dict[int, str | None]:
    if isinstance(have, str | bytes) or not isinstance(have, Iterable):
        raise InvalidInput(f"have is a list of versions, not {have!r:.80}")
    found: dict[int, str | None] = {}
    for one in have:
        number, hash = one if isinstance(one, tuple) and len(one) == 2 else (one, None)
        if type(number) is not int or number < 1 or not isinstance(hash, str | None):
            raise InvalidInput(
                f"have lists version numbers, or pairs of number and hash, not {one!r:.80}"
            )
        found[number] = hash
    return found


def _is(content: Content, hash: str | None) -> bool:
    return hash is None or content.root().hex() == hash


# Sections.

_HEADING: Final = re.compile(r"#{1,6}\s+(\S.*)")
_LINES: Final = 80
_OUTLINED: Final = 40
"""A long list is divided into at most so many sections."""


class Section(NamedTuple):
    """A part of an artifact that can be read alone."""

    name: str
    """A heading or range of lines of a text, or a key or range of items of data."""
    text: str


def sections_of(whole: Shown) -> list[Section]:
    """The parts of a text or of data, which together are the whole of it."""
    if whole.is_data:
        return _data_sections(json.loads(whole.text))
    lines = whole.text.split("\n")
    starts = [i for i, line in enumerate(lines) if _HEADING.fullmatch(line)]
    if len(starts) < 2:
        return [
            Section(
                f"lines {i + 1}-{min(i + _LINES, len(lines))}", "\n".join(lines[i : i + _LINES])
            )
            for i in range(0, len(lines), _LINES)
        ]
    bounds = [*dict.fromkeys([0, *starts]), len(lines)]
    found: list[Section] = []
    for start, end in pairwise(bounds):
        heading = _HEADING.fullmatch(lines[start])
        name = heading[1].strip() if heading else "(beginning)"
        found.append(Section(name, "\n".join(lines[start:end])))
    return _numbered(found)


def _data_sections(value: Any) -> list[Section]:
    if isinstance(value, dict):
        return [Section(key, json_text(value[key])) for key in sorted(value)]
    if isinstance(value, list):
        step = max(1, -(-len(value) // _OUTLINED))
        return [
            Section(f"items {i}-{min(i + step, len(value)) - 1}", json_text(value[i : i + step]))
            for i in range(0, len(value), step)
        ]
    return [Section("value", json_text(value))]


def _numbered(found: list[Section]) -> list[Section]:
    """Equal headings told apart by a number."""
    seen: dict[str, int] = {}
    named = []
    for one in found:
        seen[one.name] = seen.get(one.name, 0) + 1
        again = seen[one.name]
        named.append(one if again == 1 else one._replace(name=f"{one.name} ({again})"))
    return named
