"""A decoder for the values of LangGraph's own savers that calls nothing the bytes name.

The bytes are those of its `JsonPlusSerializer`, which imports and calls what they name. This
decoder builds only the types below and declared classes. Anything else is kept as stored: see
`deferred`.
"""

from __future__ import annotations

import ipaddress
import json
import pathlib
import re
import uuid
import zoneinfo
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final, Literal, Protocol, TypeAlias

import ormsgpack

from ropewalk.adapters.langgraph.deferred import Call, build, deferred

Lookup: TypeAlias = Callable[[str, str], type[Any] | None]
"""The declared class of a module and a name; None if it is undeclared."""
Reason: TypeAlias = Literal[
    "pickle", "encrypted", "damaged", "unknown", "not_storable", "different", "pruned", "aside"
]

_NUMPY: Final = 6
_SNAPSHOT: Final = 7
_CACHED: Final = 32 * 2**20
_LONGEST_CACHED: Final = 2**18


class Cipher(Protocol):
    """Decrypts values, like the `cipher` of LangGraph's `EncryptedSerializer`."""

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Decrypt bytes."""


class Unreadable(Exception):
    """A stored value that cannot be decoded, and the reason."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


def check_names(*names: str | None) -> None:
    """Raise `Unreadable` for ids that LangGraph would not make."""
    for name in names:
        if name is not None and ("\0" in name or not _is_text(name)):
            raise Unreadable("damaged", f"its id {name!r:.80} is no text that can be one")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class ValueDecoder:
    """Decodes stored values, and counts unknown classes.

    Repeated objects are decoded once: each checkpoint repeats all messages of the one before. The
    results are shared, and must not be modified.
    """

    def __init__(
        self,
        lookup: Lookup,
        *,
        snapshot: Callable[[Any], Any] | None = None,
        cipher: Cipher | None = None,
    ) -> None:
        self.unknown: Counter[str] = Counter()
        """How many values had a class that nobody declared, by its name."""
        self.refused: Counter[str] = Counter()
        """How many values their declared class did not take, by its name."""
        self._lookup = lookup
        self._snapshot = snapshot
        self._cipher = cipher
        self._failure: BaseException | None = None
        self._made: OrderedDict[tuple[int, bytes], Any] = OrderedDict()
        self._room = _CACHED

    def decode(self, kind: str | None, data: bytes | None) -> Any:
        """Decode a type and its bytes; raises `Unreadable`."""
        if kind == "null":
            return None
        if kind is None or data is None:
            raise Unreadable("damaged", "it has no type, or no bytes")
        if kind == "bytes":
            return bytes(data)
        if kind == "bytearray":
            return bytearray(data)
        if kind == "msgpack":
            return self._guarded(lambda: self._unpack(data))
        if kind == "json":
            return self._guarded(lambda: json.loads(data, object_hook=self._json_object))
        inner, plus, cipher = kind.partition("+")
        if plus and self._cipher is not None:
            return self.decode(inner, self._decrypted(self._cipher, cipher, data))
        raise _other_kind(kind)

    def _decrypted(self, cipher: Cipher, name: str, data: bytes) -> bytes:
        try:
            return cipher.decrypt(name, data)
        except Exception as error:
            raise Unreadable("encrypted", f"it cannot be decrypted: {error!r:.200}") from error

    def _guarded(self, read: Callable[[], Any]) -> Any:
        self._failure = None
        try:
            return read()
        except Unreadable:
            raise
        except (ValueError, TypeError, RecursionError) as error:
            failure = self._failure or error
            if isinstance(failure, Unreadable):
                raise failure from None
            if not isinstance(failure, Exception):
                raise failure from None
            told = f"{type(failure).__name__}: {failure}"
            raise Unreadable("damaged", f"its bytes cannot be read: {told:.300}") from error

    # msgpack.

    def _unpack(self, data: bytes) -> Any:
        return ormsgpack.unpackb(data, ext_hook=self._extension, option=ormsgpack.OPT_NON_STR_KEYS)

    def _extension(self, code: int, data: bytes) -> Any:
        """The extension hook of ormsgpack, which swallows errors, so they are recorded."""
        key = (code, data)
        found = self._made.get(key)
        if found is not None:
            self._made.move_to_end(key)
            return found
        try:
            known = self.unknown.total() + self.refused.total()
            made = self._made_of(code, data)
            if known == self.unknown.total() + self.refused.total():
                self._keep(key, made)
            return made
        except BaseException as error:
            if self._failure is None:
                self._failure = error
            raise

    def _keep(self, key: tuple[int, bytes], made: Any) -> None:
        # Small objects are cheap to decode, and msgpack's own containers are not shared.
        if key[0] not in (Call.NAMES, Call.MODEL_V2) or not 48 <= len(key[1]) <= _LONGEST_CACHED:
            return
        self._made[key] = made
        self._room -= len(key[1])
        while self._room < 0:
            (_, data), _ = self._made.popitem(last=False)
            self._room += len(data)

    def _made_of(self, code: int, data: bytes) -> Any:
        if code == _SNAPSHOT:
            return self._delta(self._unpack(data))
        if code == _NUMPY:
            return _array(self._unpack(data))
        if not 0 <= code <= max(Call):
            raise Unreadable("damaged", f"it holds an extension {code} that LangGraph never wrote")
        said = self._unpack(data)
        if not isinstance(said, list) or len(said) < 3:
            raise Unreadable("damaged", "it holds an object without a class and arguments")
        module, name, argument, *method = said
        if not isinstance(module, str) or not isinstance(name, str):
            raise Unreadable("damaged", "it holds an object whose class is no text")
        return self._object(module, name, Call(code), argument, method[:1])

    def _delta(self, value: Any) -> Any:
        if self._snapshot is None:
            raise Unreadable("unknown", "it is a snapshot of a DeltaChannel, which needs LangGraph")
        return self._snapshot(value)

    def _object(self, module: str, name: str, call: Call, argument: Any, more: list[Any]) -> Any:
        """An object of a known class, or its stored form."""
        own = _BUILT.get((module, name))
        if own is not None:
            try:
                return own(call, argument)
            except (ValueError, TypeError, ArithmeticError, OSError, NotImplementedError):
                self.refused[f"{module}.{name}"] += 1
                return argument
        cls = None if call is Call.METHOD else self._lookup(module, name)
        if cls is not None:
            try:
                return build(cls, call, argument)
            except Exception:  # noqa: BLE001 - whatever a class does, its data is kept
                self.refused[f"{module}.{name}"] += 1
        else:
            self.unknown[f"{module}.{name}"] += 1
        return deferred(module, name, call, argument, *more)

    # JSON, used until 2024.

    def _json_object(self, value: dict[str, Any]) -> Any:
        version, id = value.get("lc"), value.get("id")
        if version not in (1, 2) or value.get("type") != "constructor" or not _is_id(id):
            return value
        assert isinstance(id, list)
        *path, name = id
        args, kwargs = value.get("args") or [], value.get("kwargs") or {}
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            return value
        module = ".".join(path)
        if version == 1:
            module = _OLD_MODULES.get(name, module)
        method = value.get("method")
        if method == "fromhex" and module == "builtins" and name in ("bytes", "bytearray"):
            data = bytes.fromhex(*args)
            return data if name == "bytes" else bytearray(data)
        if kwargs:
            return self._object(module, name, Call.NAMES, kwargs, [])
        call, argument = (Call.ONE, args[0]) if len(args) == 1 else (Call.POSITIONS, args)
        if method == "fromisoformat":
            return self._object(module, name, Call.METHOD, argument, [method])
        return self._object(module, name, call, argument, [])


def _is_id(id: Any) -> bool:
    return isinstance(id, list) and len(id) > 1 and all(isinstance(part, str) for part in id)


def _other_kind(kind: str) -> Unreadable:
    if kind == "pickle":
        return Unreadable("pickle", "it is a pickle: loading one can run any code, so it is not")
    inner, plus, cipher = kind.partition("+")
    if plus:
        return Unreadable("encrypted", f"it is {inner!r:.40} encrypted with {cipher!r:.40}")
    return Unreadable("unknown", f"its type {kind!r:.80} is none that LangGraph writes")


# Types without a declaration. Each accepts what LangGraph stores for it, and nothing else.


def _one(make: Callable[[Any], Any], *kinds: type) -> Callable[[Call, Any], Any]:
    """From one argument of a type."""

    def made(call: Call, argument: Any) -> Any:
        if call is Call.POSITIONS and isinstance(argument, list) and len(argument) == 1:
            argument = argument[0]
        elif call is not Call.ONE:
            raise TypeError("it takes one argument")
        if not isinstance(argument, kinds):
            raise TypeError("it takes another argument")
        return make(argument)

    return made


def _positions(make: Callable[..., Any], *kinds: type) -> Callable[[Call, Any], Any]:
    """From several arguments of the same types."""

    def made(call: Call, argument: Any) -> Any:
        given = [argument] if call is Call.ONE else argument
        if call not in (Call.ONE, Call.POSITIONS) or not isinstance(given, list):
            raise TypeError("it takes a list of arguments")
        if not all(isinstance(one, kinds) for one in given):
            raise TypeError("it takes other arguments")
        return make(*given)

    return made


def _datetime(call: Call, argument: Any) -> datetime:
    if call is Call.METHOD and isinstance(argument, str):
        return datetime.fromisoformat(argument)
    made: datetime = _positions(datetime, int)(call, argument)
    return made


def _time(call: Call, argument: Any) -> time:
    if call is not Call.NAMES or not isinstance(argument, dict):
        raise TypeError("it takes named arguments")
    return time(**argument)


def _set_of(kind: Callable[[Any], Any]) -> Callable[[Call, Any], Any]:
    # Elements of a set were hashable, so a list was a tuple before it was stored.
    return _one(lambda held: kind(_hashable(one) for one in held), list)


def _hashable(value: Any) -> Any:
    return tuple(_hashable(one) for one in value) if isinstance(value, list) else value


def _path(call: Call, argument: Any) -> pathlib.PurePath:
    made: pathlib.PurePath = _positions(pathlib.Path, str)(call, argument)
    return made


def _windows_path(call: Call, argument: Any) -> pathlib.PurePath:
    made: pathlib.PurePath = _positions(pathlib.WindowsPath, str)(call, argument)
    return made


def _address(kind: Callable[[str], Any]) -> Callable[[Call, Any], Any]:
    return _one(kind, str)


_BUILT: Final[Mapping[tuple[str, str], Callable[[Call, Any], Any]]] = {
    ("datetime", "datetime"): _datetime,
    ("datetime", "date"): _positions(date, int),
    ("datetime", "time"): _time,
    ("datetime", "timedelta"): _positions(timedelta, int, float),
    ("datetime", "timezone"): _positions(timezone, timedelta, str),
    ("uuid", "UUID"): _one(uuid.UUID, str),
    ("decimal", "Decimal"): _one(Decimal, str),
    ("builtins", "set"): _set_of(set),
    ("builtins", "frozenset"): _set_of(frozenset),
    ("collections", "deque"): _one(deque, list),
    ("re", "compile"): _positions(re.compile, str, bytes, int),
    ("zoneinfo", "ZoneInfo"): _one(zoneinfo.ZoneInfo, str),
    **{
        ("ipaddress", kind.__name__): _address(kind)
        for kind in (
            ipaddress.IPv4Address,
            ipaddress.IPv4Interface,
            ipaddress.IPv4Network,
            ipaddress.IPv6Address,
            ipaddress.IPv6Interface,
            ipaddress.IPv6Network,
        )
    },
    **{
        (module, name): _windows_path if name == "WindowsPath" else _path
        for module in ("pathlib", "pathlib._local")
        for name in ("Path", "PosixPath", "WindowsPath")
    },
}

_OLD_MODULES: Final[Mapping[str, str]] = {
    **{
        f"{kind}Message{chunk}": f"langchain_core.messages.{module}"
        for kind, module in (
            ("Human", "human"),
            ("AI", "ai"),
            ("System", "system"),
            ("Chat", "chat"),
            ("Tool", "tool"),
            ("Function", "function"),
        )
        for chunk in ("", "Chunk")
    },
    "RemoveMessage": "langchain_core.messages.modifier",
    "Document": "langchain_core.documents.base",
}
"""LangChain's modules of classes whose objects it names in a way of its own."""


def _array(said: Any) -> Any:
    try:
        import numpy
    except ModuleNotFoundError:
        raise Unreadable("unknown", "it holds an array, which needs numpy") from None
    if not isinstance(said, list) or len(said) != 4:
        raise Unreadable("damaged", "it holds an array without a type and a shape")
    kind, shape, order, data = said
    if not isinstance(kind, str) or not isinstance(data, bytes) or order not in ("C", "F"):
        raise Unreadable("damaged", "it holds an array of an odd form")
    try:
        return numpy.frombuffer(data, dtype=numpy.dtype(kind)).reshape(shape, order=order)
    except (ValueError, TypeError) as error:
        raise Unreadable("damaged", f"it holds an array that is none: {error}") from error
