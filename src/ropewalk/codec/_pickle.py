"""Pickle for those who ask for it: bytes are authenticated before they are loaded."""

from __future__ import annotations

from typing import Any

from ropewalk.codec._records import says_changed
from ropewalk.codec._resources import INSTEAD, is_resource
from ropewalk.errors import ChangedMeanwhile, FormatError, InvalidInput, NotAllowed, NotStorable

_TAG_SIZE = 32
_MIN_KEY = 16
_ATTEMPTS = 8
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
            for _ in range(_ATTEMPTS):
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
