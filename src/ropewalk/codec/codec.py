"""`Codec`: encodes a value to canonical bytes, and decodes them.

It hides how a value is packed in as few calls of ormsgpack as possible, while other threads may
change it, and how a refusal gets the path of what was refused (`find_refusal`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial
from itertools import chain
from threading import get_ident
from typing import Any, Final, Literal

from ormsgpack import Ext, Fragment, packb

from ropewalk.codec.atoms import MAPPINGS, atom_of, open_collection
from ropewalk.codec.classes import default_name
from ropewalk.codec.decoder import Decoder, check_canonical, no_links
from ropewalk.codec.frames import is_array, open_frame, step_of, take_array
from ropewalk.codec.msgpack import (
    ATTEMPTS,
    COPIED,
    DEEP_NESTING,
    FREE_NESTED,
    MAX_NESTED,
    NO_ROOM,
    OPTIONS,
    Code,
    Form,
    Opened,
    array_header,
    extension,
    hidden_failure,
    holds_binary,
    holds_packed,
    may_hold_binary,
    nesting_exceeds,
    nests,
    pack,
    pack_exact_binary,
    says_too_deep,
)
from ropewalk.codec.paths import Field, Path, format_path
from ropewalk.codec.pickle import INSTEAD, PickleKey, is_resource
from ropewalk.codec.records import member_name, says_changed, take_apart, unsafe_key
from ropewalk.codec.registry import (
    Classes,
    Entry,
    Registry,
    Undeclared,
    can_declare,
    default_registry,
    member_bytes,
    why_not_declared,
)
from ropewalk.errors import ChangedMeanwhile, FormatError, InvalidInput, NotStorable, RopewalkError

# What a hook raised, by thread: ormsgpack turns every exception into a TypeError of its own.
_failures: dict[int, BaseException] = {}


class Codec:
    """Encodes values to canonical bytes and decodes them.

    `types` are declared for this codec only, beside what its registry declares. Plain data
    classes that the program has loaded need no declaration, unless `classes="declared"`.
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
        classes: Classes = "plain",
        undeclared: Literal["refuse", "show"] = "refuse",
    ) -> None:
        parent = default_registry if registry is None else registry
        self.registry = Registry(types, parent=parent, classes=classes)
        if undeclared not in ("refuse", "show"):
            raise InvalidInput(f"undeclared is 'refuse' or 'show', not {undeclared!r:.80}")
        self.pickle = None if pickle_key is None else PickleKey(pickle_key)
        self.shows_undeclared = undeclared == "show"

    def encode(self, value: Any) -> bytes:
        """The one encoding of a value; raises NotStorable with the path inside it.

        Other threads may change the value meanwhile: each list, dict, set and object in it
        is encoded as it was at one moment, or ChangedMeanwhile is raised.
        """
        for _ in range(ATTEMPTS):
            try:
                data = self._pack_alone(value)
                return self._pack_open(value, 0) if data is None else data
            except RecursionError as exc:
                raise NotStorable(NO_ROOM) from exc
            except TypeError as exc:
                failure = raise_interrupt(exc)
            try:
                refusal = find_refusal(self, value)
            except RecursionError as exc:
                raise NotStorable(NO_ROOM) from exc
            if refusal is not None:
                raise refusal
            if isinstance(failure, RecursionError):
                raise NotStorable(NO_ROOM) from failure
        raise ChangedMeanwhile

    def encode_again(self, value: Any) -> bytes | None:
        """A fast encoding that may take a bytearray for bytes; None if there is none.

        Only to compare with an encoding that has no binary values.
        """
        try:
            return packb(value, None, OPTIONS)
        except TypeError:
            pass
        try:
            return self._pack(value, 0, exact=False)
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
        """A decoder for this codec; `link` resolves links."""
        return Decoder(self, link)

    def showing(self) -> Codec:
        """The same codec, but a value of an unknown class decodes to an `Undeclared`."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, shows_undeclared=True)
        return made

    def open_up(self, value: Any) -> Opened:
        """The parts of a value, those of a set in no order; raises NotStorable.

        Lists and dicts of parts are copies, which nobody else can change.
        """
        cls = type(value)
        if cls is list:
            return Opened(Code.LIST, Form.SEQUENCE, value.copy())
        if cls is dict:
            mapping = value.copy()
            self._check_keys(list(mapping))
            return Opened(Code.DICT, Form.MAPPING, mapping)
        if cls is str:
            return Opened(Code.STR, Form.BYTES, _utf8(value))
        if cls is bytes:
            return Opened(Code.BYTES, Form.BYTES, value)
        if cls is tuple:
            return Opened(Code.TUPLE, Form.SEQUENCE, list(value))
        if cls is set or cls is frozenset:
            code, members = Code.SET if cls is set else Code.FROZENSET, list(value)
            self._check_keys(members)
            return Opened(code, Form.SEQUENCE, members)
        atom = atom_of(cls)
        if atom is not None:
            return Opened(atom.code, Form.BYTES, atom.encode(value))
        entry = self.registry.of(cls)
        if entry is not None:
            return open_declared(entry, value)
        opened = open_collection(value)
        if opened is None:
            opened = open_frame(value)
        if opened is None:
            return self._open_other(value)
        if opened.form is Form.MAPPING:
            self._check_keys(list(opened.parts))
        return opened

    def _open_other(self, value: Any) -> Opened:
        if is_array(value):
            head, data = take_array(value)
            return Opened(Code.ARRAY, Form.BYTES, data, head)
        if type(value) is Undeclared:
            return value.opened._replace(parts=copy(value.opened.parts))
        if self.pickle is not None:
            return Opened(Code.PICKLE, Form.BYTES, self.pickle.seal(value))
        raise NotStorable(_refusal(value, self.registry))

    def _check_keys(self, keys: list[Any]) -> None:
        reason = unsafe_key(self.registry, keys)
        if reason is not None:
            raise NotStorable(reason)

    # While ormsgpack packs a list or dict, it holds borrowed pointers to its items and their
    # count. If others can change the container, no Python may run meanwhile, or the process
    # crashes. So a packer with a hook only ever gets containers that nobody else holds.

    def _pack(self, value: Any, depth: int, *, exact: bool = True) -> bytes:
        """Encode a value that is nested in `depth` extensions; raises TypeError.

        Unless `exact`, a bytearray is encoded as bytes.
        """
        data = self._pack_alone(value, exact)
        return self._pack_open(value, depth) if data is None else data

    def _pack_open(self, value: Any, depth: int) -> bytes:
        """The same for what msgpack alone cannot encode."""
        cls = type(value)
        if cls is list or cls is dict:
            return self._pack_own(value.copy(), depth)
        return self._pack_own([value], depth)[1:]

    def _pack_alone(self, value: Any, exact: bool = True) -> bytes | None:
        """The encoding of a value that msgpack can encode without a hook; else None."""
        try:
            data = packb(value, None, OPTIONS)  # One call that nothing can interrupt.
        except TypeError as exc:
            if says_too_deep(exc):
                raise
            return None
        if not exact or type(value) in _LEAVES:
            return data
        may_be_binary = may_hold_binary(data)
        if may_be_binary and len(data) <= COPIED:
            found = pack_exact_binary(value)
            if found is not None:
                return found
        if holds_packed(value, len(data)):
            raise TypeError("it holds an Ext or Fragment")
        return None if may_be_binary and holds_binary(data) else data

    def _pack_own(self, own: list[Any] | dict[Any, Any], depth: int) -> bytes:
        """Encode a container that no other thread holds; its items may be replaced."""
        if type(own) is dict:
            if not set(map(type, own)) <= _TEXTS:
                return self._pack_pairs(own, depth)
            pairs: Iterable[tuple[Any, Any]] = own.items()
            held: Iterable[Any] = own.values()
        else:
            pairs, held = enumerate(own), own
        if not _LOOSE.isdisjoint(map(type, held)):
            for place, item in pairs:
                cls = type(item)
                if cls is list or cls is dict:
                    own[place] = Fragment(self._pack(item, depth))
                elif cls is bytearray:
                    own[place] = Ext(Code.BYTEARRAY, bytes(item))
                elif cls in _FOREIGN:
                    raise TypeError(f"a {cls.__name__} is not a value")
        return self._call_packer(own, depth)

    def _pack_pairs(self, own: dict[Any, Any], depth: int) -> bytes:
        """Encode a dict whose keys are not all strings."""
        if depth >= MAX_NESTED:
            raise NotStorable(_TOO_DEEP)
        self._check_keys(list(own))
        payload = self._pack_in_turn(own, depth + 1)
        _refuse_deep(payload, depth)
        return extension(Code.DICT, payload)

    def _pack_in_turn(self, own: dict[Any, Any], depth: int) -> bytes:
        """The encoding of the list of keys and values of a mapping."""
        if _SINGLE.issuperset(map(type, own)):
            data = self._pack_alone([piece for pair in own.items() for piece in pair])
            if data is not None:
                return data
        keys = [self._pack(key, depth) for key in own]
        if len(set(keys)) < len(keys) or not _FOREIGN.isdisjoint(map(type, own)):
            raise NotStorable("two of its keys are stored as the same bytes (nan twice?)")
        parts = [self._pack(held, depth) for held in own.values()]
        return b"".join(chain((array_header(2 * len(keys)),), *zip(keys, parts, strict=True)))

    def _call_packer(self, own: list[Any] | dict[Any, Any], depth: int) -> bytes:
        try:
            return pack(own, partial(self._hook, depth))
        except TypeError as exc:
            # An interrupt may have been hidden.
            hidden = None if get_ident() in _failures else hidden_failure(exc)
            if hidden is not None:
                raise hidden from exc
            raise

    def _hook(self, depth: int, value: Any) -> Any:
        """What ormsgpack calls for a value that msgpack has no type for."""
        try:
            return self._default(depth, value)
        except BaseException as exc:
            _failures.setdefault(get_ident(), exc)
            raise

    def _default(self, depth: int, value: Any) -> Any:
        cls = type(value)
        entry = self.registry.declared_of(cls)
        if entry is None:
            atom = atom_of(cls)
            if atom is not None:
                return Ext(atom.code, atom.encode(value))
            entry = self.registry.of(cls)
        if entry is None:
            return self._extension(depth, self.open_up(value))
        if entry.shape not in _RECORDS:
            return self._extension(depth, open_declared(entry, value))
        # The common case is a message: it is packed without an Opened.
        if depth >= MAX_NESTED:
            raise NotStorable(_TOO_DEEP)
        fields, marks = take_apart(entry, value)
        head = (entry.name, entry.version) if marks is None else (entry.name, entry.version, marks)
        payload = self._pack_record(head, fields, depth + 1)
        if depth >= FREE_NESTED:
            _refuse_deep(payload, depth)
        return Ext(_RECORD, payload)

    def _extension(self, depth: int, opened: Opened) -> Ext:
        if depth >= MAX_NESTED and nests(opened):
            raise NotStorable(_TOO_DEEP)
        if opened.form is Form.BYTES and not opened.head:
            return Ext(opened.code, opened.parts)
        payload = self._payload(depth + 1, opened)
        if depth >= FREE_NESTED:
            _refuse_deep(payload, depth)
        return Ext(opened.code, payload)

    def _payload(self, depth: int, opened: Opened) -> bytes:
        if opened.code is _RECORD:
            return self._pack_record(opened.head, opened.parts, depth)
        parts = opened.parts
        if opened.code in (Code.SET, Code.FROZENSET):
            members = sorted([self._pack(member, depth) for member in parts])
            if len(set(members)) < len(members) or not _FOREIGN.isdisjoint(map(type, parts)):
                raise NotStorable("two of its members are stored as the same bytes (nan twice?)")
            return array_header(len(members)) + b"".join(members)
        if opened.code in MAPPINGS:
            pairs = self._pack_in_turn(parts, depth)
            return pack([*opened.head, Fragment(pairs)]) if opened.head else pairs
        if not opened.head:
            data = self._pack_alone(parts)
            return self._pack_own(parts, depth) if data is None else data
        if opened.form is Form.BYTES:
            return pack([*opened.head, parts])
        custom = opened.code == Code.CUSTOM
        data = self._pack_alone([*opened.head, parts[0] if custom else parts])
        if data is not None:
            return data
        plain = self._pack_own(parts, depth)
        return pack([*opened.head, Fragment(plain[1:] if custom else plain)])

    def _pack_record(self, head: tuple[Any, ...], fields: dict[str, Any], depth: int) -> bytes:
        """The encoding of a record's content."""
        data = self._pack_alone([*head, fields])
        return pack([*head, Fragment(self._pack_own(fields, depth))]) if data is None else data


def codec_of(
    codec: Codec | None,
    types: Iterable[type],
    pickle_key: bytes | None = None,
    classes: Classes | None = None,
) -> Codec:
    """A codec as it was given, or one for some types, a key and a choice of classes."""
    if codec is None:
        return Codec(types=types, pickle_key=pickle_key, classes=classes or "plain")
    if pickle_key is not None or tuple(types) or classes is not None:
        raise InvalidInput("a codec has its own types, pickle key and classes: give those to it")
    return codec


_RECORD: Final = Code.RECORD
_RECORDS: Final = frozenset({"dataclass", "attrs", "namedtuple", "model", "struct"})
_TEXTS: Final = frozenset({str})
_LEAVES: Final = frozenset({str, int, float, bool, type(None)})
"""Types whose values hold no others and have only one encoding."""
_FOREIGN: Final = frozenset({Ext, Fragment, bytearray, memoryview})
_LOOSE: Final = _FOREIGN | {list, dict}
_SINGLE: Final = frozenset({str, int, bool, type(None)})
"""Types of keys whose encodings are distinct whenever the keys of a dict are."""


def _refuse_deep(payload: bytes, depth: int) -> None:
    if depth + 1 > FREE_NESTED and nesting_exceeds(payload, DEEP_NESTING):
        raise NotStorable(_TOO_DEEP)


def open_declared(entry: Entry, value: Any) -> Opened:
    """The parts of an object of a declared class; raises NotStorable."""
    if entry.shape == "custom":
        assert entry.encode is not None
        try:
            inner = entry.encode(value)
        except RopewalkError:
            raise
        except Exception as exc:
            if says_changed(exc):
                raise ChangedMeanwhile from exc
            raise NotStorable(f"encode= of {entry.name} failed: {exc}") from exc
        return Opened(Code.CUSTOM, Form.SEQUENCE, [inner], (entry.name, entry.version))
    if entry.shape in ("enum", "flag"):
        member = member_name(entry, value)
        return Opened(Code.ENUM, Form.BYTES, member_bytes(entry.name, entry.version, member))
    fields, fields_set = take_apart(entry, value)
    marks = () if fields_set is None else (fields_set,)
    return Opened(Code.RECORD, Form.MAPPING, fields, (entry.name, entry.version, *marks))


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as exc:
        raise NotStorable(
            f"a text has a lone surrogate at position {exc.start}, which UTF-8 cannot say"
        ) from exc


def _refusal(value: Any, registry: Registry) -> str:
    cls = type(value)
    name, shown = default_name(cls), cls.__qualname__.rpartition("<locals>.")[2]
    if is_resource(value):
        return f"{name} is {INSTEAD}"
    if can_declare(cls):
        return (
            f"{name} {registry.why_refused(cls)}; allow it with ropewalk.register({shown}) or "
            f"types=[{shown}], or keep it as a signed pickle with pickle_key="
        )
    return (
        f"{name} has no exact stored form{why_not_declared(cls)}; store its data instead, "
        f"declare it with ropewalk.register({shown}, encode=..., decode=...), or keep it as a "
        "signed pickle with pickle_key="
    )


def raise_interrupt(exc: TypeError) -> BaseException | None:
    """Raise what ended an encoding, unless it was a refusal; else give what a hook raised."""
    failure = _failures.pop(get_ident(), None)
    if failure is None:
        failure = hidden_failure(exc)
    if failure is not None and not isinstance(failure, Exception):
        raise failure
    return failure


# What is refused, and where.

_NO_BUFFER: Final = "a memoryview is a window on somebody else's bytes; store bytes(view)"
_TOO_DEEP: Final = "it is nested too deeply"
_CHANGED: Final = "it was changed meanwhile"
_LONGEST_PATH: Final = 1000


def find_refusal(codec: Codec, value: Any) -> NotStorable | ChangedMeanwhile | None:
    """Why a value is refused, with the path of what is refused in it; None if nothing is now."""
    fault = _fault_of(codec, value, 0)
    path: list[Any] = []
    depth, inside = 0, dict[int, Any]()
    while fault is not None and len(path) <= _LONGEST_PATH:
        place = format_path(tuple(path))
        if type(value) is memoryview:
            return NotStorable(_NO_BUFFER, place)
        if id(value) in inside:
            return NotStorable("it contains itself", place)
        inside[id(value)] = value
        try:
            opened = codec.open_up(value)
        except (NotStorable, ChangedMeanwhile) as exc:
            made: NotStorable | ChangedMeanwhile = ChangedMeanwhile(place)
            if isinstance(exc, NotStorable):
                made = NotStorable(exc.reason, place)
            made.__cause__ = exc
            return made
        except (RecursionError, TypeError):
            break  # The fault says it.
        below = depth if _is_plain(opened) else depth + 1
        if below > MAX_NESTED and nests(opened):
            break
        refused = _refused_part(codec, opened, below)
        if refused is None:
            fault = _fault_of(codec, value, depth)  # It may have been changed meanwhile.
            break
        steps, value, fault = refused
        path += steps
        depth = below
    place = format_path(tuple(path))
    if fault == _CHANGED:
        return ChangedMeanwhile(place)
    return None if fault is None else NotStorable(fault, place)


def _refused_part(codec: Codec, opened: Opened, depth: int) -> tuple[Path, Any, str] | None:
    """The first part that is refused, and why; one that is only too deep, if there is no other."""
    deep = None
    for steps, part in _parts(opened):
        fault = _fault_of(codec, part, depth)
        if fault is not None and fault != _TOO_DEEP:
            return steps, part, fault
        if fault is not None and deep is None:
            deep = steps, part, fault
    return deep


def _fault_of(codec: Codec, value: Any, depth: int) -> str | None:
    """Why a value that is nested in `depth` extensions cannot be encoded; None if it can."""
    try:
        codec._pack(value, depth)
    except RecursionError:
        return _TOO_DEEP
    except ChangedMeanwhile:
        return _CHANGED
    except TypeError as exc:
        failure = raise_interrupt(exc) or exc
        if isinstance(failure, ChangedMeanwhile):
            return _CHANGED
        if isinstance(failure, RecursionError) or says_too_deep(exc):
            return _TOO_DEEP
        return failure.reason if isinstance(failure, NotStorable) else str(failure)
    return None


def _is_plain(opened: Opened) -> bool:
    """Whether msgpack itself has a word for this container."""
    return opened.code == Code.LIST or (
        opened.code == Code.DICT and set(map(type, opened.parts)) <= _TEXTS
    )


def _parts(opened: Opened) -> Iterator[tuple[Path, Any]]:
    """The keys and parts of a value, each with the steps of a path that lead to it."""
    if opened.form is Form.MAPPING and opened.code != Code.RECORD:
        yield from (((key,), key) for key in opened.parts)
    yield from parts_by_step(opened)


def parts_by_step(opened: Opened) -> Iterator[tuple[Path, Any]]:
    """The parts of a value, each with the steps of a path that lead to it."""
    if opened.form is Form.MAPPING:
        field = opened.code == Code.RECORD
        yield from (((Field(key) if field else key,), part) for key, part in opened.parts.items())
    elif opened.code == Code.CUSTOM:  # What a declared class encodes itself to has no step.
        yield (), opened.parts[0]
    elif opened.code == Code.FRAME:
        kind, parts = opened.head[0], opened.parts
        yield from (((step_of(kind, parts, at),), part) for at, part in enumerate(parts))
    elif opened.form is Form.SEQUENCE:
        yield from (((at,), part) for at, part in enumerate(opened.parts))
