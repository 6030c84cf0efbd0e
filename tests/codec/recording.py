"""Classes of every kind that note each call of their own code, for hostile bytes to name."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic

EVENTS: list[str] = []
"""What ran; a class that is made at import runs code too, so clear it before a test."""


def note(what: str) -> None:
    EVENTS.append(what)


def __getattr__(name: str) -> Any:
    note(f"module __getattr__ {name}")
    raise AttributeError(name)


def made_list() -> list[Any]:
    note("default_factory")
    return []


class Noting:
    """Every hook of an object. Plain classes may have most of them: none may be called."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        note("__new__")
        return object.__new__(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        note("__setattr__")
        object.__setattr__(self, name, value)

    def __setstate__(self, state: Any) -> None:
        note("__setstate__")

    def __getattribute__(self, name: str) -> Any:
        note(f"__getattribute__ {name}")
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        note("__eq__")
        return self is other

    def __hash__(self) -> int:
        note("__hash__")
        return 1

    def __repr__(self) -> str:
        note("__repr__")
        return "noting"

    def __reduce_ex__(self, protocol: Any) -> Any:
        note("__reduce_ex__")
        return object.__reduce_ex__(self, protocol)

    def __iter__(self) -> Any:
        note("__iter__")
        return iter(())

    def __len__(self) -> int:
        note("__len__")
        return 0

    def __bool__(self) -> bool:
        note("__bool__")
        return True


@dataclass(eq=False, init=False)
class Data(Noting):
    x: Any = 1
    y: Any = field(default_factory=made_list)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        note("__init__")

    def __post_init__(self) -> None:
        note("__post_init__")


@dataclass(eq=False, repr=False, slots=True)
class Slotted(Noting):
    x: Any
    y: Any


def converted(value: Any) -> Any:
    note("converter")
    return value


def validated(instance: Any, attribute: Any, value: Any) -> None:
    note("validator")


@attrs.define(eq=False, repr=False, slots=False)
class Attrs(Noting):
    x: Any = attrs.field(converter=converted, default=1)
    y: Any = attrs.field(validator=validated, factory=made_list)

    def __attrs_post_init__(self) -> None:
        note("__attrs_post_init__")


class Model(pydantic.BaseModel):
    x: Any = 1
    y: Any = pydantic.Field(default_factory=made_list)
    _z: Any = pydantic.PrivateAttr(default_factory=made_list)

    @pydantic.field_validator("x")
    @classmethod
    def _check(cls, value: Any) -> Any:
        note("validator")
        return value

    @pydantic.model_validator(mode="before")
    @classmethod
    def _check_all(cls, value: Any) -> Any:
        note("model validator")
        return value

    def model_post_init(self, context: Any) -> None:
        note("model_post_init")

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        note("__new__")
        return object.__new__(cls)

    def __init__(self, **kwargs: Any) -> None:
        note("__init__")

    def __setattr__(self, name: str, value: Any) -> None:
        note("__setattr__")

    def __setstate__(self, state: Any) -> None:
        note("__setstate__")

    def __getattribute__(self, name: str) -> Any:
        note(f"__getattribute__ {name}")
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        note("__eq__")
        return True

    def __hash__(self) -> int:
        note("__hash__")
        return 1


class Struct(msgspec.Struct):
    x: Any
    y: Any

    def __eq__(self, other: object) -> bool:
        note("__eq__")
        return True

    def __hash__(self) -> int:
        note("__hash__")
        return 1

    def __getattribute__(self, name: str) -> Any:
        note(f"__getattribute__ {name}")
        return object.__getattribute__(self, name)


class PostStruct(msgspec.Struct):
    x: Any
    y: Any = msgspec.field(default_factory=made_list)

    def __post_init__(self) -> None:
        note("__post_init__")


class Pair(NamedTuple):
    x: Any
    y: Any

    def __eq__(self, other: object) -> bool:
        note("__eq__")
        return True

    def __hash__(self) -> int:
        note("__hash__")
        return 1

    def __getattribute__(self, name: str) -> Any:
        note(f"__getattribute__ {name}")
        return object.__getattribute__(self, name)


class Mood(enum.Enum):
    GOOD = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        note("_missing_")
        return cls.GOOD

    def __eq__(self, other: object) -> bool:
        note("__eq__")
        return True

    def __hash__(self) -> int:
        note("__hash__")
        return 1


class Bits(enum.Flag):
    LOW = 1
    HIGH = 2
    TOP = 4

    @classmethod
    def _missing_(cls, value: object) -> Any:
        note("_missing_")
        return cls.LOW

    def __setattr__(self, name: str, value: Any) -> None:
        note("__setattr__")
        object.__setattr__(self, name, value)

    def __getattribute__(self, name: str) -> Any:
        note(f"__getattribute__ {name}")
        return object.__getattribute__(self, name)


# What is not plain.


@dataclass
class Dying:
    x: Any
    y: Any

    def __del__(self) -> None:
        note("__del__")


class Watching:
    def __set__(self, instance: Any, value: Any) -> None:
        note("__set__")

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            raise AttributeError("x")
        note("__get__")
        return None


@dataclass
class Watched:
    x: Any
    y: Any


Watched.x = Watching()


class Meta(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        note("metaclass __call__")
        return super().__call__(*args, **kwargs)

    def __getattribute__(cls, name: str) -> Any:
        note(f"metaclass __getattribute__ {name}")
        return super().__getattribute__(name)

    def __getattr__(cls, name: str) -> Any:
        note(f"metaclass __getattr__ {name}")
        raise AttributeError(name)

    def __getitem__(cls, key: Any) -> Any:
        note("metaclass __getitem__")
        return cls

    def __subclasscheck__(cls, other: Any) -> bool:
        note("metaclass __subclasscheck__")
        return True

    def __instancecheck__(cls, other: Any) -> bool:
        note("metaclass __instancecheck__")
        return True

    def __eq__(cls, other: object) -> bool:
        note("metaclass __eq__")
        return cls is other

    def __hash__(cls) -> int:
        note("metaclass __hash__")
        return 1


@dataclass
class WithMeta(metaclass=Meta):
    x: Any
    y: Any


class Callable:
    """No data class at all."""

    def __init__(self, x: Any = None, y: Any = None) -> None:
        note("__init__")


@dataclass
class Failure(Exception):
    x: Any
    y: Any


class Child(Data):
    """A data class only by inheritance."""


@dataclass(frozen=True)
class Key:
    """A class that may be a key, if what it holds may be one."""

    x: Any


class Holder:
    """Names that lead through it end at an instance."""

    def __getattr__(self, name: str) -> Any:
        note(f"instance __getattr__ {name}")
        return Data


holder = Holder()
Alias = Data
