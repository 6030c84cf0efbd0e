"""Which classes a program declared, under which names, and stand-ins for the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, overload

from ormsgpack import Ext

from ropewalk.codec.atoms import atom_of
from ropewalk.codec.classes import (
    LONGEST_NAME,
    Shape,
    default_name,
    find_class,
    is_native,
    shape_of,
    stands_in,
    why_no_key,
    why_not_plain,
    why_not_rebuilt,
    why_unknown,
)
from ropewalk.codec.msgpack import Code, Form, Opened, pack
from ropewalk.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Undeclared:
    """Stands for a value whose class this program did not declare. It runs no code.

    Given by a `Codec` with `undeclared="show"`. Stored again, it is what it was.
    """

    name: str
    """The name of its class, as it was stored; `pickle` for a pickle."""
    version: int
    content: Any
    """Its fields, by name; the name of an enum's member; the bytes of a pickle."""
    opened: Opened

    def __hash__(self) -> int:
        # Fields may not be hashable, but the value may have been a key.
        return hash((self.name, self.version))

    def __repr__(self) -> str:
        if isinstance(self.content, dict):
            fields = ", ".join(f"{name}={value!r}" for name, value in self.content.items())
            return f"{self.name}({fields})"
        return f"{self.name}({self.content!r})"


def undeclared(code: int, head: list[Any], content: Any) -> Undeclared:
    """The stand-in for a record, a member of an enum, or a custom value."""
    name, version = head[0], head[1]
    if code == Code.ENUM:
        opened = Opened(Code.ENUM, Form.BYTES, member_bytes(name, version, content))
    elif code == Code.CUSTOM:
        opened = Opened(Code.CUSTOM, Form.SEQUENCE, [content], tuple(head))
    else:
        opened = Opened(Code.RECORD, Form.MAPPING, content, tuple(head))
    return Undeclared(name, version, content, opened)


def member_bytes(name: str, version: int, member: Any) -> bytes:
    """How a member of an enum is stored; raises TypeError if it is neither text nor number."""
    large = type(member) is int and not -(2**63) <= member < 2**64
    atom = atom_of(int) if large else None
    return pack([name, version, member if atom is None else Ext(atom.code, atom.encode(member))])


def undeclared_pickle(data: bytes) -> Undeclared:
    """The stand-in for a pickle, which is not loaded."""
    return Undeclared("pickle", 1, data, Opened(Code.PICKLE, Form.BYTES, data))


Classes: TypeAlias = Literal["plain", "declared"]
"""Which classes come back: also plain ones that are loaded, or only those declared."""
Migration: TypeAlias = Callable[[Any], Any]
T = TypeVar("T", bound=type)


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One declared class."""

    cls: type
    name: str
    version: int
    shape: Shape
    migrations: Mapping[int, Migration]
    encode: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Any] | None = None
    plan: Any = dataclasses.field(default=None, compare=False, repr=False)
    """What is constant of the class, once it was needed."""
    no_key: str | None = dataclasses.field(default="", compare=False, repr=False)

    def why_no_key(self) -> str | None:
        """Why its objects may not be hashed while stored bytes are read; None if they may."""
        if self.no_key == "":
            found = None if self.shape == "custom" else why_no_key(self.cls, self.shape)
            object.__setattr__(self, "no_key", found)
        return self.no_key


class Registry:
    """The classes that may be stored and read back.

    A registry sees everything its parent declares, also what is declared later.
    `ropewalk.register` declares in the default registry. With `classes="plain"` plain data
    classes that the program has loaded need no declaration.
    """

    def __init__(
        self,
        types: Iterable[type] = (),
        *,
        parent: Registry | None = None,
        classes: Classes = "declared",
    ) -> None:
        if classes not in ("plain", "declared"):
            raise InvalidInput(f"classes is 'plain' or 'declared', not {classes!r:.80}")
        self.classes: Classes = classes
        self._parent = parent
        self._by_class: dict[type, Entry] = {}
        self._by_name: dict[str, Entry] = {}
        for cls in types:
            self.register(cls)

    @overload
    def register(
        self,
        cls: T,
        *,
        name: str | None = ...,
        version: int = ...,
        aliases: Iterable[str] = ...,
        migrations: Mapping[int, Migration] | None = ...,
        encode: Callable[[Any], Any] | None = ...,
        decode: Callable[[Any], Any] | None = ...,
    ) -> T: ...

    @overload
    def register(
        self,
        cls: None = None,
        *,
        name: str | None = ...,
        version: int = ...,
        aliases: Iterable[str] = ...,
        migrations: Mapping[int, Migration] | None = ...,
        encode: Callable[[Any], Any] | None = ...,
        decode: Callable[[Any], Any] | None = ...,
    ) -> Callable[[T], T]: ...

    def register(
        self,
        cls: Any = None,
        *,
        name: str | None = None,
        version: int = 1,
        aliases: Iterable[str] = (),
        migrations: Mapping[int, Migration] | None = None,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Declare a class, so that its values can be stored and read back.

        Works as a function and as a decorator. Dataclasses, attrs classes, NamedTuples,
        pydantic models, msgspec Structs and Enums need nothing more, unless it takes code
        of the class to make their objects. Any other class needs `encode` (object to
        storable value) and `decode` (the way back).

        `name` is what is stored (default: module and qualified name). `aliases` are
        names under which older data was stored. `migrations[n]` turns the fields of
        version n into those of version n + 1.
        """
        if cls is None:
            return lambda real: self.register(
                real,
                name=name,
                version=version,
                aliases=aliases,
                migrations=migrations,
                encode=encode,
                decode=decode,
            )
        if (encode is None) != (decode is None):
            raise InvalidInput(f"{_label(cls)}: give both encode= and decode=, or neither")
        if type(version) is not int or version < 1:
            raise InvalidInput(f"{_label(cls)}: version must be an integer from 1, not {version!r}")
        if isinstance(aliases, str):
            raise InvalidInput(f"{_label(cls)}: aliases is a list of names, not one text")
        _check_migrations(cls, version, migrations)
        shape: Shape = "custom" if encode else _shape_of(cls)
        stored = default_name(cls) if name is None else name
        entry = Entry(cls, stored, version, shape, dict(migrations or {}), encode, decode)
        # A class of the running program is found under both names of its module.
        own = (f"{cls.__module__}.{cls.__qualname__}",) if name is None else ()
        self._add(entry, tuple(dict.fromkeys((stored, *own, *aliases))))
        return cls

    def _add(self, entry: Entry, names: tuple[str, ...]) -> None:
        for name in names:
            if not isinstance(name, str) or not name:
                raise InvalidInput(f"{_label(entry.cls)}: a name must be a text, not {name!r}")
            if len(name) > LONGEST_NAME:
                raise InvalidInput(
                    f"{_label(entry.cls)}: a name has at most {LONGEST_NAME} characters"
                )
            taken = self.declared(name)
            if taken is not None and not _same_class(taken.cls, entry.cls):
                raise InvalidInput(
                    f"the name {name!r} already stands for {_label(taken.cls)}; "
                    f"give {_label(entry.cls)} another name="
                )
        self._by_class[entry.cls] = entry
        for name in names:
            self._by_name[name] = entry

    def adopt(self, other: Registry) -> None:
        """Declare what another registry itself declares, under the same names."""
        self._by_class.update(other._by_class)
        self._by_name.update(other._by_name)

    def of(self, cls: type) -> Entry | None:
        """The entry of exactly this class, if its name leads back to the class."""
        if self._find(cls) is not None:
            return self.declared_of(cls)
        found = _plain.of(cls) if self.classes == "plain" else None
        return found if found is not None and self.declared(found.name) is None else None

    def declared_of(self, cls: type) -> Entry | None:
        """The entry that somebody declared for exactly this class, likewise."""
        found = self._find(cls)
        if found is None:
            return None
        # A class that was declared later under the same name is what would come back.
        named = self.declared(found.name)
        return found if named is not None and named.cls is cls else None

    def _find(self, cls: type) -> Entry | None:
        found = self._by_class.get(cls)
        if found is None and self._parent is not None:
            return self._parent._find(cls)
        return found

    def named(self, name: str) -> Entry | None:
        """The entry stored under a name or an alias."""
        found = self.declared(name)
        return _plain.named(name) if found is None and self.classes == "plain" else found

    def declared(self, name: str) -> Entry | None:
        """The entry that somebody declared under a name or an alias."""
        found = self._by_name.get(name)
        if found is None and self._parent is not None:
            return self._parent.declared(name)
        return found

    def why_unknown(self, name: str) -> str:
        """Why a stored name has no entry, and what to do about it."""
        declared = "which this program did not declare"
        return why_unknown(name) if self.classes == "plain" else declared

    def why_refused(self, cls: type) -> str:
        """Why a class has no entry, and whether a plain declaration would give it one."""
        shape = shape_of(cls)
        if self.classes == "declared" or why_not_plain(cls, shape) is None:
            return "is not declared"
        return f"is not plain data: {why_not_plain(cls, shape)}"


class _Known(NamedTuple):
    """A plain class, and where it was found."""

    entry: Entry
    module: str
    steps: list[str]

    def is_current(self) -> bool:
        return stands_in(self.entry.cls, self.module, self.steps)


class _PlainClasses:
    """A cache of the undeclared plain data classes of this process."""

    def __init__(self) -> None:
        self._by_class: dict[type, _Known] = {}
        self._by_name: dict[str, _Known] = {}

    def of(self, cls: type) -> Entry | None:
        """The entry of a class, if it is plain."""
        known = self._by_class.get(cls)
        if known is not None and known.is_current():
            return known.entry
        if cls is Undeclared or is_native(cls):
            return None
        shape = shape_of(cls)
        if shape is None or why_not_plain(cls, shape) is not None:
            return None
        name = default_name(cls)
        module = find_class(name)[1]
        steps = cls.__qualname__.split(".")
        known = _Known(Entry(cls, name, 1, shape, {}), module, steps)
        older = self._by_name.get(name)
        if older is not None:  # Its module was loaded again.
            self._by_class.pop(older.entry.cls, None)
        self._by_class[cls] = self._by_name[name] = known
        return known.entry

    def named(self, name: str) -> Entry | None:
        """The entry of the loaded class that bears a name, if it is plain."""
        known = self._by_name.get(name)
        if known is not None and known.is_current():
            return known.entry
        cls, _ = find_class(name)
        return None if cls is None else self.of(cls)


_plain = _PlainClasses()


def _check_migrations(cls: Any, version: int, migrations: Any) -> None:
    steps = {} if migrations is None else migrations
    if not isinstance(steps, Mapping) or not all(map(callable, steps.values())):
        raise InvalidInput(f"{_label(cls)}: migrations is a dict of version to function")
    unused = [step for step in steps if type(step) is not int or not 1 <= step < version]
    if unused:
        raise InvalidInput(
            f"{_label(cls)}: migrations {unused} lead nowhere: each leads from a version "
            f"below {version} to the next"
        )


def _same_class(one: type, other: type) -> bool:
    # A module that is reloaded declares its classes again.
    return one is other or default_name(one) == default_name(other)


def _label(cls: Any) -> str:
    return default_name(cls) if isinstance(cls, type) else repr(cls)


def why_not_declared(cls: type) -> str:
    """What of a class keeps it from being declared without encode= and decode=."""
    shape = shape_of(cls)
    reason = None if shape is None else why_not_rebuilt(cls, shape)
    return "" if reason is None else f" of its own: {reason}"


def can_declare(cls: type) -> bool:
    """Whether `register(cls)` works without encode= and decode=."""
    try:
        _shape_of(cls)
    except InvalidInput:
        return False
    return True


def _shape_of(cls: Any) -> Shape:
    if not isinstance(cls, type):
        raise InvalidInput(f"register takes a class, not {cls!r}")
    shape = shape_of(cls)
    if shape is None:
        raise InvalidInput(
            f"{_label(cls)} is not a dataclass, attrs class, NamedTuple, pydantic model, "
            "msgspec Struct or Enum; give register both encode= and decode="
        )
    reason = why_not_rebuilt(cls, shape)
    if reason is not None:
        raise InvalidInput(
            f"{_label(cls)} cannot come back from its fields without running its own code: "
            f"{reason}; give register both encode= and decode="
        )
    return shape


default_registry = Registry()
register = default_registry.register
