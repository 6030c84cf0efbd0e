"""Pickle for those who ask for it, and what not even that can store.

The bytes of a pickle are authenticated before they are loaded.
"""

from __future__ import annotations

from typing import Any, Final

from ropewalk.codec.msgpack import ATTEMPTS
from ropewalk.codec.records import says_changed
from ropewalk.errors import ChangedMeanwhile, FormatError, InvalidInput, NotAllowed, NotStorable

_TAG_SIZE = 32
_MIN_KEY = 16
_DOMAIN = b"ropewalk-pickle-1\0"


class PickleKey:
    """The key with which a program signs its pickles.

    Whoever has the key can make this program run code. Keep it as you keep a password.
    """

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes):
            raise InvalidInput(
                f"a pickle key must be at least {_MIN_KEY} bytes, not a {type(key).__name__}"
            )
        if len(key) < _MIN_KEY:
            raise InvalidInput(f"a pickle key must be at least {_MIN_KEY} bytes")
        self._key = key

    def __repr__(self) -> str:
        return "PickleKey(...)"

    def seal(self, value: Any) -> bytes:
        """Pickle and sign a value."""
        import pickle

        try:
            data = pickle.dumps(value, protocol=5)
            # Others may change the object while it is walked over.
            for _ in range(ATTEMPTS):
                before, data = data, pickle.dumps(value, protocol=5)
                if data == before:
                    return self._tag(data) + data
        except Exception as exc:
            if says_changed(exc):
                raise ChangedMeanwhile from exc
            reason = f"it is {INSTEAD}" if is_resource(value) else str(exc)
            raise NotStorable(f"a {type(value).__qualname__} cannot be pickled: {reason}") from exc
        raise ChangedMeanwhile

    def open(self, sealed: bytes) -> Any:
        """Check the signature, then unpickle."""
        import hmac
        import pickle

        tag, data = sealed[:_TAG_SIZE], sealed[_TAG_SIZE:]
        if not hmac.compare_digest(tag, self._tag(data)):
            raise NotAllowed("a stored pickle was not signed with this program's key")
        try:
            return pickle.loads(data)
        except Exception as exc:
            raise FormatError(f"a stored pickle cannot be loaded: {exc}") from exc

    def _tag(self, data: bytes) -> bytes:
        import hmac

        return hmac.digest(self._key, _DOMAIN + data, "sha256")


# Connections, cursors, files, locks, generators: what stands for something outside.

_MODULES: Final = frozenset(
    "_thread asyncio concurrent multiprocessing select socket ssl subprocess threading".split()
)
_NAMES: Final = ("client", "connection", "cursor", "engine", "pool", "session")
_METHODS: Final = ("fileno", "fetchall", "acquire", "__next__", "__anext__", "send")

INSTEAD: Final = (
    "a live resource, not data; use it within one step and store what it gives, such as "
    "cursor.fetchall() or list(generator), or keep it in a Live state"
)
"""What whoever tries is told."""


def is_resource(value: Any) -> bool:
    """Whether an object, which cannot be stored, is one that is used and not kept."""
    cls = type(value)
    if isinstance(value, type):
        return False
    if cls.__module__.partition(".")[0] in _MODULES:
        return True
    if cls.__name__.lower().endswith(_NAMES) and hasattr(cls, "close"):
        return True
    return any(hasattr(cls, method) for method in _METHODS)
