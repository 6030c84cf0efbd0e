"""pydantic models and msgspec Structs come back as they were, without their code."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import pydantic
import pytest
from ormsgpack import Ext

from ropewalk.codec import Codec, decode, encode
from ropewalk.codec.msgpack import Code, extension, pack
from ropewalk.errors import ClassChanged, InvalidInput, NotStorable
from tests.sample_types import Box, IntBox, Item, Open, Person
from tests.strategies import same


class Called(Exception):
    pass


class Checked(pydantic.BaseModel):
    x: int = 1
    _seen: list[str] = pydantic.PrivateAttr(default_factory=list)

    @pydantic.field_validator("x")
    @classmethod
    def _check(cls, value: int) -> int:
        if value < 0:
            raise Called
        return value

    def model_post_init(self, context: Any) -> None:
        if "x" not in self.__pydantic_fields_set__:
            raise Called


def test_validators_do_not_run_when_a_model_is_read() -> None:
    codec = Codec(types=[Checked])
    made = Checked(x=1)
    made.__dict__["x"] = "not a number"
    made._seen.append("here")

    found = codec.decode(codec.encode(made))

    assert same(found, made)


def test_which_fields_were_set_comes_back() -> None:
    value = [Person(name="a"), Person(name="a", age=0), Person.model_construct()]
    value[2].__dict__["name"] = "b"

    found = decode(encode(value))

    assert [one.model_fields_set for one in found] == [{"name"}, {"name", "age"}, set()]
    assert found[0].model_dump(exclude_unset=True) == {"name": "a"}


def test_extra_and_private_values_come_back() -> None:
    made = Open.model_validate({"known": 1, "more": [2], "+odd": 3})
    made._secret = {"k": (4,)}

    found = decode(encode(made))

    assert same(found, made)
    assert found.more == [2]
    assert found._secret == {"k": (4,)}


def test_extra_values_are_refused_once_the_class_does_not_allow_them() -> None:
    stored = extension(Code.RECORD, pack(["sample.Person", 1, {"name": 1, "+more": 2}]))

    with pytest.raises(ClassChanged, match="more"):
        decode(stored)


def test_private_values_that_are_gone_from_the_class_are_refused() -> None:
    stored = extension(Code.RECORD, pack(["sample.Person", 1, {"name": 1, "_old": 2}]))

    with pytest.raises(ClassChanged, match="_old"):
        decode(stored)


def test_what_a_model_gained_takes_its_defaults() -> None:
    person = decode(extension(Code.RECORD, pack(["sample.Person", 1, {"name": 1}])))
    opened = decode(extension(Code.RECORD, pack(["sample.Open", 1, {"known": 1}])))

    assert (person.age, person.model_fields_set) == (0, {"name"})
    assert opened._secret is None


def test_a_model_that_lacks_a_required_field_is_refused() -> None:
    with pytest.raises(ClassChanged, match=r"nothing is stored for \['name'\]"):
        decode(extension(Code.RECORD, pack(["sample.Person", 1, {"age": 1}])))


class Cached(pydantic.BaseModel):
    x: int

    @functools.cached_property
    def double(self) -> int:
        return 2 * self.x


def test_a_cached_property_that_was_asked_for_is_left_out() -> None:
    made = Cached(x=1)
    assert made.double == 2

    found = decode(encode([made]))[0]

    assert found.__dict__ == {"x": 1}
    assert found.double == 2


def test_a_generic_model_is_declared_with_its_parameters() -> None:
    assert type(decode(encode(IntBox(content=1)))) is Box[int]
    with pytest.raises(NotStorable, match=r"register\(Box\[str\]\)"):
        encode(Box[str](content="x"))


class Names(pydantic.RootModel[list[str]]):
    pass


class Both(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True, frozen=True)

    inner: Names = pydantic.Field(alias="outer-name")
    items: tuple[Cached, ...] = ()


def test_models_in_models_and_aliases_come_back() -> None:
    codec = Codec(types=[Names, Both, Cached])
    made = Both.model_validate({"inner": Names(["a"]), "items": (Cached(x=1),)})

    found = codec.decode(codec.encode({made.inner.root[0]: made}))

    assert same(found["a"], made)


@pydantic.dataclasses.dataclass
class Mixed:
    x: int
    y: int = 2


def test_a_pydantic_dataclass_comes_back() -> None:
    codec = Codec(types=[Mixed])

    assert same(codec.decode(codec.encode(Mixed(1))), Mixed(1))


# msgspec


class Sealed(msgspec.Struct, frozen=True, kw_only=True, tag="s", rename="camel"):
    long_name: int
    other: list[int] = msgspec.field(default_factory=list)


class Counted(msgspec.Struct):
    x: int

    def __post_init__(self) -> None:
        self.x += 1


class Picky(msgspec.Struct):
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise Called("below zero")


class Wide(msgspec.Struct, dict=True):
    x: int


def test_a_frozen_struct_with_other_names_outside_comes_back() -> None:
    codec = Codec(types=[Sealed])
    made = Sealed(long_name=1, other=[2])

    assert same(codec.decode(codec.encode(made)), made)


@pytest.mark.parametrize("cls", [Counted, Picky])
def test_a_struct_that_runs_code_whenever_it_is_made_needs_functions_of_its_own(cls: Any) -> None:
    with pytest.raises(InvalidInput, match=r"__post_init__.*encode= and decode="):
        Codec(types=[cls])
    with pytest.raises(NotStorable, match="__post_init__"):
        encode([cls(1)])


def test_attributes_of_a_struct_that_are_not_fields_are_refused() -> None:
    codec = Codec(types=[Wide])
    made = Wide(1)

    assert same(codec.decode(codec.encode(made)), made)
    made.more = 2  # type: ignore[attr-defined]
    with pytest.raises(NotStorable, match="more"):
        codec.encode(made)


def test_fields_that_a_struct_gained_take_their_defaults() -> None:
    found = decode(extension(Code.RECORD, pack(["sample.Item", 1, {"key": "k"}])))

    assert same(found, Item("k", 1))


def test_a_model_that_is_rebuilt_is_taken_apart_as_it_is_now() -> None:
    class Late(pydantic.BaseModel):
        x: "Later | None" = None  # noqa: UP037 - a name that is not there yet

    codec = Codec(types=[Late])
    codec.encode(Late.model_construct(x=None))

    class Later(pydantic.BaseModel):
        y: int = 0

    Late.model_rebuild(_types_namespace={"Later": Later})
    codec.registry.register(Later)
    made = Late(x=Later(y=3))

    assert same(codec.decode(codec.encode(made)), made)


@pytest.mark.parametrize("size", [0, 1, 2, 4, 15, 16, 17, 255, 256, 257, 65535, 65536])
def test_an_extension_of_any_size_is_as_ormsgpack_writes_it(size: int) -> None:
    payload = bytes(size)

    assert extension(Code.RECORD, payload) == pack(Ext(Code.RECORD, payload))


def test_fields_that_were_set_are_not_shared_between_models() -> None:
    one, other = decode(encode([Person(name="a"), Person(name="b")]))

    one.__pydantic_fields_set__.add("age")

    assert other.model_fields_set == {"name"}


class Slotted(pydantic.BaseModel):
    __slots__ = ("hidden",)
    x: int = 1


def test_a_model_with_slots_of_its_own_is_refused() -> None:
    made = Slotted()
    object.__setattr__(made, "hidden", [1])

    with pytest.raises(NotStorable, match="slots hidden"):
        encode(made)


class Hashed(msgspec.Struct, frozen=True, cache_hash=True):
    x: int


def test_a_struct_that_remembers_its_hash_comes_back() -> None:
    made = Hashed(1)
    hash(made)

    assert decode(encode({made: [made]})) == {made: [made]}
