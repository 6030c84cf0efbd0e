"""Canonical bytes as a value, and the strict check that a value has one accepted encoding.

Nothing stored makes it import or call anything. The check knows nothing of declared classes, so
it holds for data of programs that are not here, and of older versions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from ormsgpack import Ext, unpackb

from ropewalk.codec.atoms import (
    DECODERS,
    MAPPINGS,
    build_collection,
    check_head,
    decode_atom,
    is_canonical_atom,
)
from ropewalk.codec.classes import LONGEST_NAME
from ropewalk.codec.frames import build_array, build_frame, check_array, check_frame, is_missing
from ropewalk.codec.msgpack import (
    DEEP_NESTING,
    FREE_NESTED,
    HEADED,
    MAX_NESTED,
    NESTED,
    Code,
    Form,
    Opened,
    hidden_failure,
    nesting_exceeds,
    pack,
    unpack,
)
from ropewalk.codec.records import (
    ModelPlan,
    member_of,
    plan_of,
    put_together,
    set_unless_marked,
    unsafe_key,
)
from ropewalk.codec.registry import Entry, Registry, Undeclared, undeclared, undeclared_pickle
from ropewalk.errors import (
    ClassChanged,
    FormatError,
    NotAllowed,
    RopewalkError,
    UndeclaredClass,
)

if TYPE_CHECKING:
    from ropewalk.codec.codec import Codec


_RECORD = int(Code.RECORD)
_TEXTS = frozenset({str})


def no_links(id: bytes) -> Any:
    """What refuses links."""
    raise FormatError("the value points to another object, but only its bytes were given")


class Decoder:
    """Decodes bytes with the classes of a codec; `link` gives what a link stands for."""

    def __init__(self, codec: Codec, link: Callable[[bytes], Any] = no_links) -> None:
        self._codec = codec
        self._link = link
        self._failure: BaseException | None = None
        self._hooks = [partial(self._hook, 0)]
        self._met: dict[str, Entry] = {}
        """The classes of models that were met in what is being decoded."""

    def decode(self, data: bytes) -> Any:
        """The value; raises FormatError, UndeclaredClass or ClassChanged."""
        if self._met:
            self._met.clear()
        try:
            return unpackb(data, ext_hook=self._hooks[0])
        except (ValueError, TypeError, RecursionError) as exc:
            self._raise(exc)

    def _unpack(self, depth: int, data: bytes) -> Any:
        if depth == len(self._hooks):
            self._hooks.append(partial(self._hook, depth))
        try:
            return unpackb(data, ext_hook=self._hooks[depth])
        except (ValueError, TypeError, RecursionError) as exc:
            self._raise(exc)

    def _raise(self, exc: Exception) -> NoReturn:
        failure, self._failure = self._failure, None
        if failure is not None:
            # ormsgpack hides what a hook raised.
            raise failure
        hidden = hidden_failure(exc)
        if hidden is not None:
            raise hidden from exc
        raise FormatError(f"the bytes are not a stored value: {exc}") from exc

    def _hook(self, depth: int, code: int, data: bytes) -> Any:
        try:
            if code == _RECORD:
                return self._record(depth, data)
            if code in DECODERS:
                return decode_atom(code, data)
            if code == Code.LINK:
                return self._link(data)
            if code == Code.PICKLE:
                return self._unpickle(data)
            return self._container(depth, code, data)
        except BaseException as exc:
            if self._failure is None:
                self._failure = exc
            raise

    def _record(self, depth: int, data: bytes) -> Any:
        content = self._content(depth, Code.RECORD, data)
        plan = self._usual(content)
        if plan is not None:
            named = plan.public if len(content) == 3 else plan.set_of(content[2])
            return plan.build(content[-1], named)
        *head, parts = content or [None]
        return self.close(Code.RECORD, head, parts)

    def _usual(self, content: list[Any]) -> ModelPlan | None:
        """The plan of a model that is stored as its class is now, with nothing but fields.

        Most records are such, and need none of what all others need.
        """
        if not 3 <= len(content) <= 4:
            return None
        name, version = content[0], content[1]
        entry = self._met.get(name) if type(name) is str else None
        if entry is None and type(name) is str:
            entry = self._codec.registry.named(name)
            if entry is not None:
                self._met[name] = entry
        if entry is None or entry.shape != "model":
            return None
        if type(version) is not int or version != entry.version:
            return None
        plan, fields = plan_of(entry), content[-1]
        if not plan.is_simple or type(fields) is not dict or list(fields) != plan.names:
            return None
        return plan if len(content) == 3 or _all_text(content[2]) else None

    def _content(self, depth: int, code: int, data: bytes) -> list[Any]:
        """What an extension holds."""
        if depth >= FREE_NESTED and (depth >= MAX_NESTED or nesting_exceeds(data, DEEP_NESTING)):
            raise FormatError("the bytes are nested too deeply")
        content = self._unpack(depth + 1, data)
        if type(content) is not list:
            raise FormatError(f"extension {code} holds no list")
        return content

    def _container(self, depth: int, code: int, data: bytes) -> Any:
        if code not in NESTED:
            raise FormatError(_unknown(code))
        content = self._content(depth, code, data)
        if code == Code.DICT:
            return self.pairs_to_dict(content[::2], content[1::2])
        head: list[Any] = []
        parts: Any = content
        if code in HEADED:
            *head, parts = content or [None]
        if code in MAPPINGS:
            _expect(type(parts) is list, "dict")
            parts = self.pairs_to_dict(parts[::2], parts[1::2])
        return self.close(code, head, [parts] if code == Code.CUSTOM else parts)

    def _unpickle(self, data: bytes) -> Any:
        if self._codec.pickle is None:
            if self._codec.shows_undeclared:
                return undeclared_pickle(data)
            raise NotAllowed(
                "the value holds a pickle, which runs code when it is loaded; "
                "if you trust its writer, give the pickle_key with which it was signed"
            )
        return self._codec.pickle.open(data)

    def close(self, code: int, head: list[Any], parts: Any) -> Any:
        """Put a value together from its parts; the inverse of `Codec.open_up`."""
        maker = _MAKERS.get(code)
        if maker is not None:
            return maker(self, head, parts)
        if code in DECODERS:
            return decode_atom(code, parts)
        if code == Code.PICKLE:
            return self._unpickle(parts)
        raise FormatError(_unknown(code))

    def pairs_to_dict(self, keys: list[Any], values: list[Any]) -> dict[Any, Any]:
        """A dict of stored keys and values; raises FormatError if keys collide."""
        self.check_keys(keys)
        try:
            built = dict(zip(keys, values, strict=True))
        except Exception as exc:
            raise FormatError(f"a stored dict is malformed: {exc}") from exc
        if len(built) != len(keys):
            raise FormatError("a stored dict has the same key twice")
        return built

    def _unique(self, cls: Callable[[list[Any]], Any], parts: list[Any]) -> Any:
        self.check_keys(parts)
        try:
            built = cls(parts)
        except Exception as exc:
            raise FormatError(f"a stored set is malformed: {exc}") from exc
        if len(built) != len(parts):
            raise FormatError("a stored set has the same member twice")
        return built

    def check_keys(self, keys: list[Any]) -> None:
        """Raise FormatError if hashing these values would run code of a class."""
        reason = unsafe_key(self._codec.registry, keys)
        if reason is not None:
            raise FormatError(f"a stored key would run code: {reason}")

    def _make_mapping(self, head: list[Any], parts: Any, code: int) -> Any:
        return build_collection(code, head, parts)

    def _make_deque(self, head: list[Any], parts: Any) -> Any:
        _expect(type(parts) is list, "deque")
        return build_collection(Code.DEQUE, head, parts)

    def _make_frame(self, head: list[Any], parts: Any) -> Any:
        check_frame([*head, parts])
        if self._codec.shows_undeclared and is_missing(head[0]):
            opened = Opened(Code.FRAME, Form.SEQUENCE, parts, tuple(head))
            return Undeclared(head[0], 1, parts, opened)
        return build_frame(head[0], parts)

    def _make_str(self, head: list[Any], parts: bytes) -> str:
        try:
            return parts.decode()
        except UnicodeDecodeError as exc:
            raise FormatError("a stored text is not UTF-8") from exc

    def _make_array(self, head: list[Any], parts: Any) -> Any:
        _expect(len(head) == 3, "array")
        dtype, shape, order = head
        try:
            return build_array(dtype, shape, order, parts)
        except UndeclaredClass as error:
            if not self._codec.shows_undeclared:
                raise
            opened = Opened(Code.ARRAY, Form.BYTES, parts, tuple(head))
            return Undeclared(error.name, 1, {"dtype": dtype, "shape": shape}, opened)

    def _make_enum(self, head: list[Any], parts: Any) -> Any:
        _expect(len(head) == 2 and type(parts) in (str, int), "enum member")
        if self._is_strange(head):
            return self._stranger(Code.ENUM, head, parts)
        entry, member = self._current(head, parts)
        _expect_shape(entry, "enum", "flag")
        return member_of(entry, member)

    def _make_record(self, head: list[Any], parts: Any) -> Any:
        fields_set = head[2] if len(head) == 3 else None
        sound = (
            len(head) in (2, 3)
            and type(parts) is dict
            and set(map(type, parts)) <= _TEXTS
            and (fields_set is None or _all_text(fields_set))
        )
        _expect(sound, "record")
        if self._is_strange(head):
            return self._stranger(Code.RECORD, head, parts)
        entry, fields = self._current(head, parts)
        if fields is not parts:
            if type(fields) is not dict or not set(map(type, fields)) <= _TEXTS:
                raise ClassChanged(f"the migrations of {entry.name} must give a dict of its fields")
            fields = dict(fields)
        _expect_shape(entry, "dataclass", "attrs", "namedtuple", "model", "struct")
        return put_together(entry, fields, fields_set)

    def _make_custom(self, head: list[Any], parts: Any) -> Any:
        _expect(len(head) == 2 and len(parts) == 1, "custom value")
        if self._is_strange(head):
            return self._stranger(Code.CUSTOM, head, parts[0])
        entry, inner = self._current(head, parts[0])
        _expect_shape(entry, "custom")
        assert entry.decode is not None
        return _call(entry.decode, inner, f"decode= of {entry.name}")

    def _is_strange(self, head: list[Any]) -> bool:
        """Whether the class is unknown, and a stand-in is wanted."""
        if not self._codec.shows_undeclared:
            return False
        _expect_class(head)
        return self._codec.registry.named(head[0]) is None

    def _stranger(self, code: Code, head: list[Any], content: Any) -> Any:
        """What stands for a value of an unknown class; adapters know more of them."""
        return undeclared(code, head, content)

    def _current(self, head: list[Any], stored: Any) -> tuple[Entry, Any]:
        """The declared class, and the stored parts brought to its version."""
        name, version = head[0], head[1]
        _expect_class(head)
        entry = self._codec.registry.named(name)
        if entry is None:
            raise UndeclaredClass(name, _undeclared(name, self._codec.registry))
        if version > entry.version:
            raise ClassChanged(
                f"{name} was stored as version {version}, but this program declares "
                f"version {entry.version}; run the newer program"
            )
        for step in range(version, entry.version):
            migrate = entry.migrations.get(step)
            if migrate is None:
                raise ClassChanged(
                    f"{name} was stored as version {version} and nothing leads on from "
                    f"version {step}; give register migrations={{{step}: function}}"
                )
            stored = _call(migrate, stored, f"the migration of {name} from version {step}")
        return entry, stored


_MAKERS: dict[int, Callable[[Decoder, list[Any], Any], Any]] = {
    Code.LIST: lambda decoder, head, parts: parts,
    Code.BYTES: lambda decoder, head, parts: parts,
    Code.DICT: lambda decoder, head, parts: parts,
    Code.MAP: lambda decoder, head, parts: parts,
    Code.TUPLE: lambda decoder, head, parts: tuple(parts),
    Code.SET: lambda decoder, head, parts: decoder._unique(set, parts),
    Code.FROZENSET: lambda decoder, head, parts: decoder._unique(frozenset, parts),
    Code.STR: Decoder._make_str,
    Code.DEQUE: Decoder._make_deque,
    Code.FRAME: Decoder._make_frame,
    **{code: partial(Decoder._make_mapping, code=code) for code in MAPPINGS},
    Code.ARRAY: Decoder._make_array,
    # By name, since adapters make some of these in their own way.
    Code.ENUM: lambda decoder, head, parts: decoder._make_enum(head, parts),
    Code.RECORD: lambda decoder, head, parts: decoder._make_record(head, parts),
    Code.CUSTOM: lambda decoder, head, parts: decoder._make_custom(head, parts),
}


def _all_text(names: Any) -> bool:
    return type(names) is list and set(map(type, names)) <= _TEXTS


def _expect(sound: bool, what: str) -> None:
    if not sound:
        raise FormatError(f"a stored {what} is malformed")


def _expect_class(head: list[Any]) -> None:
    name, version = head[0], head[1]
    _expect(type(name) is str and 0 < len(name) <= LONGEST_NAME, "class name")
    _expect(type(version) is int and version >= 1, "class version")


def _expect_shape(entry: Entry, *shapes: str) -> None:
    if entry.shape not in shapes:
        raise ClassChanged(
            f"{entry.name} was stored as another kind of class than the one declared now, "
            f"a {entry.shape}"
        )


def _call(function: Callable[[Any], Any], argument: Any, what: str) -> Any:
    try:
        return function(argument)
    except RopewalkError:
        raise
    except Exception as exc:
        raise ClassChanged(f"{what} failed: {type(exc).__qualname__}: {exc}") from exc


def _unknown(code: int) -> str:
    return f"type code {code} is not known; a newer Ropewalk may have written it"


def _undeclared(name: str, registry: Registry) -> str:
    cls = name.rpartition(".")[2]
    # The name may come from anywhere, and a reader may paste the line.
    cls = cls if cls.isidentifier() else "TheClass"
    return (
        f"a stored value is of class {name!r}, {registry.why_unknown(name)}. "
        f"To allow it: ropewalk.register({cls}, name={name!r})"
    )


_TWICE = "a dict has the same key twice"
_LINK_SIZE = 32
_LINK_HEAD = bytes([0xC7, _LINK_SIZE, Code.LINK])


def check_canonical(data: bytes) -> None:
    """Raise FormatError unless the bytes are the one encoding of some value."""
    _check(data, 0)


def _check(data: bytes, depth: int) -> Any:
    failures: list[BaseException] = []
    try:
        value = unpack(data, partial(_check_extension, depth, failures))
        again = pack(value)
    except (ValueError, TypeError, RecursionError) as exc:
        if failures:
            raise failures[0] from None
        hidden = hidden_failure(exc)
        if hidden is not None:
            raise hidden from exc
        raise FormatError(f"the bytes are not a stored value: {exc}") from exc
    if again != data:
        raise FormatError("the bytes are not in the one form that is accepted")
    return value


def _check_extension(depth: int, failures: list[BaseException], code: int, data: bytes) -> Ext:
    try:
        _check_content(depth, code, data)
    except BaseException as exc:
        failures.append(exc)
        raise
    return Ext(code, data)


def _check_content(depth: int, code: int, data: bytes) -> None:
    if code in DECODERS:
        name = Code(code).name.lower()
        _expect_sound(is_canonical_atom(code, data), f"a {name} is not in its one form")
    elif code == Code.LINK:
        _expect_sound(len(data) == _LINK_SIZE, "a link is malformed")
    elif code in _CHECKS:
        deep = depth + 1 > FREE_NESTED and nesting_exceeds(data, DEEP_NESTING)
        _expect_sound(depth < MAX_NESTED and not deep, "the bytes are nested too deeply")
        content = _check(data, depth + 1)
        _expect_sound(type(content) is list, f"extension {code} holds no list")
        _CHECKS[code](content)
    else:
        _expect_sound(code == Code.PICKLE, f"type code {code} is not known")


def _check_set(content: list[Any]) -> None:
    encoded = [pack(item) for item in content]
    _expect_sound(len(set(encoded)) == len(encoded), "a set has the same member twice")
    # Members are in the order of their encodings, which a link does not show.
    if not any(_LINK_HEAD in member for member in encoded):
        ascending = all(one < other for one, other in pairwise(encoded))
        _expect_sound(ascending, "a set is not in its order")


def _check_dict(content: list[Any]) -> None:
    _check_pairs(content)
    _expect_sound(
        any(type(key) is not str for key in content[::2]), "a dict of texts is stored as another"
    )


def _check_pairs(content: Any) -> None:
    _expect_sound(type(content) is list and len(content) % 2 == 0, "a dict lacks a value")
    _expect_sound(len({pack(key) for key in content[::2]}) * 2 == len(content), _TWICE)


def _check_deque(content: list[Any]) -> None:
    *head, items = content or [None]
    check_head(Code.DEQUE, head)
    sound = type(items) is list and (head[0] is None or len(items) <= head[0])
    _expect_sound(sound, "a deque has more items than its maxlen")


def _check_default_dict(content: list[Any]) -> None:
    *head, pairs = content or [None]
    check_head(Code.DEFAULT_DICT, head)
    _check_pairs(pairs)


def _check_named(content: list[Any]) -> None:
    sound = len(content) >= 3 and type(content[0]) is str
    sound = sound and 0 < len(content[0]) <= LONGEST_NAME
    _expect_sound(
        sound and type(content[1]) is int and content[1] >= 1, "a class name is malformed"
    )


def _check_record(content: list[Any]) -> None:
    _check_named(content)
    _expect_sound(len(content) <= 4 and type(content[-1]) is dict, "a record is malformed")
    if len(content) == 4:
        marks = content[2]
        sound = type(marks) is list and all(type(mark) is str for mark in marks)
        sound = (
            sound and marks == sorted(set(marks)) and set(marks) != set_unless_marked(content[3])
        )
        _expect_sound(sound, "the set fields of a record are malformed")


def _check_enum(content: list[Any]) -> None:
    _check_named(content)
    sound = len(content) == 3 and (
        type(content[2]) in (str, int) or _is_extension(content[2], Code.INT)
    )
    _expect_sound(sound, "an enum member is malformed")


def _is_extension(value: Any, code: Code) -> bool:
    return type(value) is Ext and bool(unpack(pack(value), lambda found, data: found) == code)


def _check_custom(content: list[Any]) -> None:
    _check_named(content)
    _expect_sound(len(content) == 3, "a custom value is malformed")


def _check_array(content: list[Any]) -> None:
    _expect_sound(len(content) == 4, "an array is malformed")
    if not _is_extension(content[3], Code.LINK):
        check_array(*content)


_CHECKS: dict[int, Callable[[list[Any]], None]] = {
    Code.TUPLE: lambda content: None,
    Code.SET: _check_set,
    Code.FROZENSET: _check_set,
    Code.DICT: _check_dict,
    Code.RECORD: _check_record,
    Code.CUSTOM: _check_custom,
    Code.ENUM: _check_enum,
    Code.ARRAY: _check_array,
    Code.DEQUE: _check_deque,
    Code.ORDERED_DICT: _check_pairs,
    Code.COUNTER: _check_pairs,
    Code.DEFAULT_DICT: _check_default_dict,
    Code.FRAME: check_frame,
}


def _expect_sound(sound: bool, problem: str) -> None:
    if not sound:
        raise FormatError(problem)
