"""The digests of values that another store keeps."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final

from ropewalk.codec import Codec
from ropewalk.coherence import Artifact
from ropewalk.coherence.artifact import Content

_DIGEST: Final = "digest"
_PLAIN: Final = (str, int, type(None))


class Record(Content):
    """What is committed for a value, instead of the value."""

    __slots__ = ("stands_for",)

    stands_for: Content | None
    """The value, for who logs the commit."""


class Digester:
    """Tells whether a value is the one whose digest was committed.

    Two values have one digest if they are the same to JSON, whatever the order of their keys.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def record(self, content: Content) -> Record:
        """What is committed for a value."""
        made = Record.of({_DIGEST: self.digest(content.fresh())}, self._codec)
        assert isinstance(made, Record)
        made.stands_for = content
        return made

    def agree(self, record: Artifact | None, value: Any) -> bool:
        """Whether a record and a value belong together; None is none of either."""
        if record is None or value is None:
            return record is None and value is None
        given = record.value
        return isinstance(given, dict) and given.get(_DIGEST) == self.digest(value)

    def digest(self, value: Any) -> str:
        """The same for the same value."""
        try:
            text = json.dumps(
                value, sort_keys=True, separators=(",", ":"), default=self._spelled
            ).encode()
        except (TypeError, ValueError, RecursionError):
            text = self._codec.encode(value)
        return sha256(text).hexdigest()

    def _spelled(self, value: Any) -> str:
        return self._codec.encode(value).hex()


def is_plain(value: Any) -> bool:
    """Whether every store gives a value back as it was, but for the order of its keys.

    A float is none: stores that keep JSON make 1e16 a whole number, -0.0 another zero, and of
    NaN they make nothing.
    """
    if isinstance(value, dict):
        return all(type(key) is str and is_plain(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return isinstance(value, _PLAIN)
