"""Which classes a program declared, and under which names they are stored."""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, overload

from ropewalk.errors import InvalidInput

Shape: TypeAlias = Literal["dataclass", "namedtuple", "model", "struct", "enum", "flag", "custom"]
Migration: TypeAlias = Callable[[Any], Any]
T = TypeVar("T", bound=type)

LONGEST_NAME = 256


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


class Registry:
    """The classes that may be stored and read back.

    A registry sees everything its parent declares, also what is declared later.
    `ropewalk.register` declares in the default registry.
    """

    def __init__(self, types: Iterable[type] = (), *, parent: Registry | None = None) -> None:
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

        Works as a function and as a decorator. Dataclasses, NamedTuples, pydantic
        models, msgspec Structs and Enums need nothing more. Any other class needs
        `encode` (object to storable value) and `decode` (the way back).

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
        self._add(entry, (stored, *aliases))
        return cls

    def _add(self, entry: Entry, names: tuple[str, ...]) -> None:
        for name in names:
            if not isinstance(name, str) or not name:
                raise InvalidInput(f"{_label(entry.cls)}: a name must be a text, not {name!r}")
            if len(name) > LONGEST_NAME:
                raise InvalidInput(
                    f"{_label(entry.cls)}: a name has at most {LONGEST_NAME} letters"
                )
            taken = self.named(name)
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
        found = self._find(cls)
        if found is None:
            return None
        # A class that was declared later under the same name is what would come back.
        named = self.named(found.name)
        return found if named is not None and named.cls is cls else None

    def _find(self, cls: type) -> Entry | None:
        found = self._by_class.get(cls)
        if found is None and self._parent is not None:
            return self._parent._find(cls)
        return found

    def named(self, name: str) -> Entry | None:
        """The entry stored under a name or an alias."""
        found = self._by_name.get(name)
        if found is None and self._parent is not None:
            return self._parent.named(name)
        return found


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


def default_name(cls: type) -> str:
    """The name under which a class is stored unless another was given."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _same_class(one: type, other: type) -> bool:
    # A module that is reloaded declares its classes again.
    return one is other or default_name(one) == default_name(other)


def _label(cls: Any) -> str:
    return default_name(cls) if isinstance(cls, type) else repr(cls)


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
    if issubclass(cls, enum.Enum):
        return "flag" if issubclass(cls, enum.Flag) else "enum"
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "namedtuple"
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        return "model"
    msgspec = sys.modules.get("msgspec")
    if msgspec is not None and issubclass(cls, msgspec.Struct):
        return "struct"
    if dataclasses.is_dataclass(cls) and _is_plain(cls):
        return "dataclass"
    raise InvalidInput(
        f"{_label(cls)} is not a dataclass, NamedTuple, pydantic model, msgspec Struct or Enum; "
        "give register both encode= and decode="
    )


def _is_plain(cls: type) -> bool:
    """Whether all that an object holds is in its attributes."""
    made = [base for base in cls.__mro__ if getattr(base.__new__, "__self__", None) is base]
    return made == [object]


default_registry = Registry()
register = default_registry.register
