"""One declared class of every kind, for tests that need some."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Generic, NamedTuple, TypeVar

import attrs
import msgspec
import pydantic

from ropewalk.codec import register

T = TypeVar("T")


@register(name="sample.Color")
class Color(enum.Enum):
    RED = "red"
    GREEN = "green"
    ROUGE = "red"  # noqa: PIE796 - another name of RED


@register(name="sample.Level")
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@register(name="sample.Word")
class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"


@register(name="sample.Right")
class Right(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    OWN = enum.auto()
    VAST = 1 << 70


@register(name="sample.Point")
class Point(NamedTuple):
    x: Any
    y: Any = 0


@register(name="sample.Note")
@dataclasses.dataclass
class Note:
    text: Any
    tags: Any = dataclasses.field(default_factory=list)


@register(name="sample.Spot")
@dataclasses.dataclass(frozen=True)
class Spot:
    row: Any
    column: Any = 0


@register(name="sample.Slim")
@dataclasses.dataclass(slots=True)
class Slim:
    left: Any
    right: Any = None


@register(name="sample.Person")
class Person(pydantic.BaseModel):
    name: Any
    age: Any = 0


@register(name="sample.Open")
class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    known: Any = None
    _secret: Any = pydantic.PrivateAttr(default=None)


@register(name="sample.Fixed")
class Fixed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)

    held: Any


class Box(pydantic.BaseModel, Generic[T]):
    content: T


IntBox = register(Box[int], name="sample.IntBox")


@register(name="sample.Item")
class Item(msgspec.Struct):
    key: Any
    weight: Any = 1


@register(name="sample.Coin")
class Coin(msgspec.Struct, frozen=True):
    worth: Any


# Plain classes that nobody declares.


@attrs.frozen(cache_hash=True)
class Stamp:
    place: Any
    year: Any = 0


@attrs.define
class Crate:
    goods: Any
    size: Any = attrs.field(factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Seat:
    row: Any
    number: Any = 0


class Shade(enum.StrEnum):
    DARK = "dark"
    LIGHT = "light"


class Money:
    """A class that fields do not describe; it says itself how it is stored."""

    def __init__(self, amount: int, currency: str) -> None:
        self.amount = amount
        self.currency = currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.amount, self.currency))

    def __repr__(self) -> str:
        return f"Money({self.amount!r}, {self.currency!r})"


register(
    Money,
    name="sample.Money",
    encode=lambda money: [money.amount, money.currency],
    decode=lambda stored: Money(*stored),
)
