"""A value as canonical bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from threading import get_ident
from typing import Any, Literal

from ormsgpack import Ext, Fragment

from ropewalk.codec import _numpy
from ropewalk.codec._atoms import atom_of
from ropewalk.codec._canonical import check_canonical
from ropewalk.codec._codes import DEEP_NESTING, FREE_NESTED, MAX_NESTED, NO_ROOM, Code
from ropewalk.codec._decoder import Decoder, no_links
from ropewalk.codec._msgpack import (
    array_header,
    binary_types,
    hidden_failure,
    is_foreign,
    may_hold_binary,
    nesting_exceeds,
    pack,
)
from ropewalk.codec._opened import Form, Opened, nests
from ropewalk.codec._pickle import PickleKey
from ropewalk.codec._records import take_apart
from ropewalk.codec._registry import Entry, Registry, can_declare, default_name, default_registry
from ropewalk.codec._resources import INSTEAD, is_resource
from ropewalk.codec._undeclared import Undeclared, member_bytes
from ropewalk.codec._walk import Walk
from ropewalk.errors import FormatError, InvalidInput, NotStorable, RopewalkError

# What a hook raised, by thread: ormsgpack turns every exception into a TypeError of its own.
_failures: dict[int, BaseException] = {}


class Codec:
    """Encodes values to canonical bytes and decodes them.

    `types` are declared for this codec only, beside what its registry declares.
    With a `pickle_key`, objects that have no other form are stored as signed pickles.
    With `undeclared="show"`, for programs that look at what others stored, a value of an
    unknown class comes back as `Undeclared` instead of raising `UndeclaredClass`.
    """

    def __init__(
        self,
        registry: Registry | None = None,
        *,
        types: Iterable[type] = (),
        pickle_key: bytes | None = None,
        undeclared: Literal["refuse", "show"] = "refuse",
    ) -> None:
        self.registry = Registry(types, parent=default_registry if registry is None else registry)
        if undeclared not in ("refuse", "show"):
            raise InvalidInput(f"undeclared is 'refuse' or 'show', not {undeclared!r:.80}")
        self.pickle = None if pickle_key is None else PickleKey(pickle_key)
        self.shows_undeclared = undeclared == "show"
        self._hooks = tuple(partial(self._hook, depth) for depth in range(MAX_NESTED + 1))

    def encode(self, value: Any) -> bytes:
        """The one encoding of a value; raises NotStorable with the path inside it."""
        try:
            return self.encode_noting_binary(value)[0]
        except RecursionError as exc:
            raise NotStorable(NO_ROOM) from exc

    def encode_noting_binary(self, value: Any) -> tuple[bytes, bool]:
        """The encoding, and whether the value holds bytes.

        Where it holds none, equal bytes mean an equal value even if somebody else
        encoded it without looking for bytearrays.
        """
        try:
            data = pack(value, self._hooks[0])
        except TypeError as exc:
            raise_interrupt(exc)
            return Walk(self).encode(value), True
        if not may_hold_binary(data):
            return data, False
        types = binary_types(value)
        return (Walk(self).encode(value) if is_foreign(types) else data), bool(types)

    def encode_again(self, value: Any) -> bytes | None:
        """The encoding without a look for bytearrays, or None where that needs a walk.

        Only for comparing with bytes that hold no binary value.
        """
        try:
            return pack(value, self._hooks[0])
        except TypeError as exc:
            raise_interrupt(exc)
            return None

    def decode(self, data: bytes) -> Any:
        """The value of an encoding from anywhere; raises FormatError.

        Only the one accepted encoding of a value is decoded.
        """
        try:
            check_canonical(data)
            return self.decoder().decode(data)
        except RecursionError as exc:
            raise FormatError(NO_ROOM) from exc

    def decoder(self, link: Callable[[bytes], Any] = no_links) -> Decoder:
        """What decodes for this codec; `link` gives what a link stands for."""
        return Decoder(self, link)

    def shared(self) -> Codec:
        """The same codec, for values that other threads may be changing."""
        from ropewalk.codec._shared import SharedCodec

        return SharedCodec(self)

    def stand_in(self, value: Any) -> Any:
        """What is stored in place of a value, which is most often itself."""
        return value

    def remembered(self, value: Any, depth: int) -> Fragment | None:
        """The encoding of a value inside so many extensions, if there is no need to make it."""
        return None

    def open_up(self, value: Any) -> Opened:
        """The parts of a value, those of a set in no order; raises NotStorable."""
        cls = type(value)
        if cls is list:
            return Opened(Code.LIST, Form.SEQUENCE, value)
        if cls is dict:
            return Opened(Code.DICT, Form.MAPPING, value)
        if cls is str:
            return Opened(Code.STR, Form.BYTES, _utf8(value))
        if cls is bytes:
            return Opened(Code.BYTES, Form.BYTES, value)
        if cls is tuple:
            return Opened(Code.TUPLE, Form.SEQUENCE, list(value))
        if cls is set or cls is frozenset:
            code = Code.SET if cls is set else Code.FROZENSET
            return Opened(code, Form.SEQUENCE, list(value))
        atom = atom_of(cls)
        if atom is not None:
            return Opened(atom.code, Form.BYTES, atom.encode(value))
        entry = self.registry.of(cls)
        return self._open_other(value) if entry is None else open_declared(entry, value)

    def _open_other(self, value: Any) -> Opened:
        if _numpy.is_array(value):
            return Opened(
                Code.ARRAY, Form.BYTES, _numpy.array_bytes(value), _numpy.array_head(value)
            )
        if type(value) is Undeclared:
            return value.opened
        if self.pickle is not None:
            return Opened(Code.PICKLE, Form.BYTES, self.pickle.seal(value))
        raise NotStorable(_refusal(value))

    def _hook(self, depth: int, value: Any) -> Any:
        """What ormsgpack calls for a value that msgpack cannot say."""
        try:
            return self._say(depth, value)
        except BaseException as exc:
            _failures.setdefault(get_ident(), exc)
            raise

    def _say(self, depth: int, value: Any) -> Any:
        entry = self.registry.of(type(value))
        if entry is not None:
            return self._extension(depth, open_declared(entry, value))
        atom = atom_of(type(value))
        if atom is not None:
            return Ext(atom.code, atom.encode(value))
        return self._extension(depth, self.open_up(value))

    def _extension(self, depth: int, opened: Opened) -> Ext:
        if depth >= MAX_NESTED and nests(opened):
            raise NotStorable("nested too deeply")
        if opened.form is Form.BYTES and not opened.head:
            return Ext(opened.code, opened.parts)
        payload = self._payload(depth + 1, opened)
        if depth + 1 > FREE_NESTED and nesting_exceeds(payload, DEEP_NESTING):
            raise NotStorable("nested too deeply")
        return Ext(opened.code, payload)

    def _payload(self, depth: int, opened: Opened) -> bytes:
        hook = self._hooks[depth]
        if opened.code in (Code.SET, Code.FROZENSET):
            members = sorted([_pack_inside(member, hook) for member in opened.parts])
            if is_foreign(set(map(type, opened.parts))) or len(set(members)) < len(members):
                raise NotStorable("it holds a memoryview, or the same member twice")
            return array_header(len(members)) + b"".join(members)
        content = opened.parts
        if opened.head:
            last = opened.parts[0] if opened.code == Code.CUSTOM else opened.parts
            content = [*opened.head, last]
        payload = _pack_inside(content, hook)
        if may_hold_binary(payload) and is_foreign(binary_types(content)):
            raise NotStorable("it holds a bytearray")
        return payload


def open_declared(entry: Entry, value: Any) -> Opened:
    """The parts of an object of a declared class; raises NotStorable."""
    if entry.shape == "custom":
        assert entry.encode is not None
        try:
            inner = entry.encode(value)
        except RopewalkError:
            raise
        except Exception as exc:
            raise NotStorable(f"encode= of {entry.name} failed: {exc}") from exc
        return Opened(Code.CUSTOM, Form.SEQUENCE, [inner], (entry.name, entry.version))
    if entry.shape in ("enum", "flag"):
        member = value._value_ if entry.shape == "flag" else value._name_
        if entry.shape == "enum" and entry.cls.__members__.get(member) is not value:  # type: ignore[attr-defined]
            raise NotStorable(f"{entry.name} has no member of the name {member!r} like this one")
        return Opened(Code.ENUM, Form.BYTES, _member_bytes(entry, member))
    fields, fields_set = take_apart(entry, value)
    marks = () if fields_set is None else (fields_set,)
    return Opened(Code.RECORD, Form.MAPPING, fields, (entry.name, entry.version, *marks))


def _member_bytes(entry: Entry, member: Any) -> bytes:
    try:
        return member_bytes(entry.name, entry.version, member)
    except TypeError as exc:
        raise NotStorable(f"{entry.name} has a member {member!r} of an odd type") from exc


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as exc:
        raise NotStorable(
            f"a text has a lone surrogate at position {exc.start}, which UTF-8 cannot say"
        ) from exc


def _refusal(value: Any) -> str:
    cls = type(value)
    name = default_name(cls)
    if is_resource(value):
        return f"{name} is {INSTEAD}"
    if can_declare(cls):
        return f"{name} is not declared; allow it with ropewalk.register({cls.__qualname__})"
    return (
        f"{name} has no exact stored form; store its data instead, or declare it with "
        f"ropewalk.register({cls.__qualname__}, encode=..., decode=...)"
    )


def _pack_inside(value: Any, hook: Callable[[Any], Ext]) -> bytes:
    """Encode what stands inside an extension, where an interrupt may have been hidden."""
    try:
        return pack(value, hook)
    except TypeError as exc:
        hidden = None if get_ident() in _failures else hidden_failure(exc)
        if hidden is not None:
            raise hidden from exc
        raise


def raise_interrupt(exc: TypeError) -> None:
    """Raise what ended an encoding, unless it was a refusal."""
    failure = _failures.pop(get_ident(), None)
    if failure is None:
        failure = hidden_failure(exc)
    if failure is not None and not isinstance(failure, Exception):
        raise failure
