"""Declared classes: names, versions, changes, and what is never called."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Any, NamedTuple

import pytest

from ropewalk.codec import Codec, Registry, default_registry, encode, register
from ropewalk.codec.msgpack import Code, extension, pack
from ropewalk.errors import ClassChanged, FormatError, InvalidInput, NotStorable, UndeclaredClass
from tests.sample_types import Color, Note, Point, Right


def _record(name: str, fields: dict[str, Any], version: int = 1) -> bytes:
    return extension(Code.RECORD, pack([name, version, fields]))


def _codec(cls: type, **options: Any) -> Codec:
    registry = Registry()
    registry.register(cls, **options)
    return Codec(registry)


@dataclasses.dataclass
class City:
    name: str
    size: int = 5
    tags: list[str] = dataclasses.field(default_factory=list)


# Names and registries


def test_a_class_is_stored_under_its_module_and_name() -> None:
    data = Codec(types=[City]).encode(City("Rome", 1, []))

    assert b"tests.codec.test_classes.City" in data


def test_a_class_is_stored_under_the_name_it_was_given() -> None:
    codec = _codec(City, name="geo.City")

    data = codec.encode(City("Rome"))

    assert b"geo.City" in data
    assert codec.decode(data) == City("Rome")


def test_types_are_declared_for_one_codec_only() -> None:
    data = Codec(types=[City]).encode(City("Rome"))

    with pytest.raises(UndeclaredClass):
        Codec(classes="declared").decode(data)
    with pytest.raises(NotStorable):
        Codec(classes="declared").encode(City("Rome"))


def test_a_registry_sees_what_its_parent_declares_later() -> None:
    parent = Registry()
    codec = Codec(Registry(parent=parent))

    parent.register(City)

    assert codec.decode(codec.encode(City("Rome"))) == City("Rome")


def test_a_parent_does_not_see_what_its_child_declares() -> None:
    parent = Registry()

    Registry([City], parent=parent)

    assert parent.of(City) is None
    assert parent.named("tests.codec.test_classes.City") is None


def test_an_empty_registry_declares_nothing() -> None:
    closed = Codec(Registry(), classes="declared")

    with pytest.raises(NotStorable, match="not declared"):
        closed.encode(Note("x"))
    with pytest.raises(UndeclaredClass):
        closed.decode(encode(Note("x")))


def test_register_is_a_decorator_with_and_without_arguments() -> None:
    registry = Registry()

    @registry.register
    @dataclasses.dataclass
    class One:
        x: int

    @registry.register(name="two")
    @dataclasses.dataclass
    class Two:
        x: int

    codec = Codec(registry)
    assert codec.decode(codec.encode([One(1), Two(2)])) == [One(1), Two(2)]


def test_an_undeclared_class_is_named_with_the_line_that_allows_it() -> None:
    data = pack({"a": [1]})[:-2] + b"\x91" + _record("shop.models.Order", {"id": 1})

    with pytest.raises(UndeclaredClass) as caught:
        Codec().decode(data)

    assert caught.value.name == "shop.models.Order"
    assert "ropewalk.register(Order, name='shop.models.Order')" in str(caught.value)


@pytest.mark.parametrize("name", ["x); import os; (", "a.b\nc", "a.", "list[int]"])
def test_the_line_that_allows_a_class_never_holds_foreign_code(name: str) -> None:
    with pytest.raises(UndeclaredClass) as caught:
        Codec().decode(_record(name, {}))

    assert f"ropewalk.register(TheClass, name={name!r})" in str(caught.value)


def test_a_name_stands_for_one_class() -> None:
    registry = Registry([City])

    with pytest.raises(InvalidInput, match="already stands for"):
        registry.register(Point, name="tests.codec.test_classes.City")
    with pytest.raises(InvalidInput, match="already stands for"):
        registry.register(Point, aliases=["tests.codec.test_classes.City"])
    with pytest.raises(InvalidInput, match="already stands for"):
        Registry(parent=registry).register(Point, name="tests.codec.test_classes.City")
    assert registry.of(Point) is None


def _make_class() -> type:
    @dataclasses.dataclass
    class Local:
        x: int

    return Local


def test_a_class_that_is_declared_again_replaces_the_first() -> None:
    first, second = _make_class(), _make_class()
    codec = Codec(Registry([first, second]))

    assert type(codec.decode(codec.encode(second(1)))) is second
    with pytest.raises(NotStorable, match="made inside a function"):
        codec.encode(first(1))


def test_a_parent_that_declares_the_name_of_a_child_later_changes_nothing_for_the_child() -> None:
    first, second = _make_class(), _make_class()
    parent = Registry()
    codec = Codec(Registry([first], parent=parent))

    parent.register(second)

    assert type(codec.decode(codec.encode(first(1)))) is first
    with pytest.raises(NotStorable):
        codec.encode(second(1))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": ""}, "a name must be a text"),
        ({"name": 5}, "a name must be a text"),
        ({"name": "x" * 257}, "at most 256 characters"),
        ({"aliases": [""]}, "a name must be a text"),
        ({"aliases": "old.Name"}, "a list of names"),
        ({"version": 0}, "version must be an integer"),
        ({"version": 1.0}, "version must be an integer"),
        ({"version": True}, "version must be an integer"),
        ({"encode": str}, "give both"),
        ({"decode": str}, "give both"),
    ],
)
def test_what_cannot_be_declared_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Registry().register(City, **options)


class Plain:
    pass


@dataclasses.dataclass
class Failure(Exception):
    x: int = 1


@dataclasses.dataclass
class Listing(list[int]):
    x: int = 1


@dataclasses.dataclass
class Partial(functools.partial):  # type: ignore[type-arg]
    x: int = 1


@pytest.mark.parametrize("cls", [Plain, Failure, Listing, Partial, int, list, dict, str, object, 5])
def test_classes_that_fields_do_not_describe_need_both_functions(cls: Any) -> None:
    with pytest.raises(InvalidInput):
        Registry().register(cls)


def test_unknown_options_are_errors() -> None:
    with pytest.raises(TypeError):
        register(City, nmae="x")  # type: ignore[call-overload]
    assert default_registry.of(City) is None


# Aliases, versions and migrations


def test_an_alias_reads_what_was_stored_under_an_older_name() -> None:
    codec = _codec(City, name="new.City", aliases=["old.City", "older.City"])

    found = codec.decode(_record("older.City", {"name": "Rome", "size": 1, "tags": []}))

    assert found == City("Rome", 1, [])
    assert b"new.City" in codec.encode(found)


def test_migrations_lead_from_version_to_version() -> None:
    codec = _codec(
        City,
        name="City",
        version=3,
        migrations={
            1: lambda fields: {"title": fields["label"]},
            2: lambda fields: {"name": fields["title"].upper()},
        },
    )

    assert codec.decode(_record("City", {"label": "rome"}, 1)) == City("ROME")
    assert codec.decode(_record("City", {"title": "rome"}, 2)) == City("ROME")
    assert codec.decode(_record("City", {"name": "rome"}, 3)) == City("rome")
    assert codec.encode(City("x"))[: -len(pack({}))].find(b"City\x03") > 0


def test_a_version_from_the_future_is_refused() -> None:
    codec = _codec(City, name="City", version=2)

    with pytest.raises(ClassChanged, match=r"version 3.*run the newer program"):
        codec.decode(_record("City", {"name": "x"}, 3))


def test_a_missing_migration_is_named() -> None:
    codec = _codec(City, name="City", version=3, migrations={1: lambda fields: fields})

    with pytest.raises(ClassChanged, match=r"migrations=\{2: function\}"):
        codec.decode(_record("City", {"name": "x"}, 1))


def test_a_migration_that_fails_is_named() -> None:
    codec = _codec(City, name="City", version=2, migrations={1: lambda fields: fields["gone"]})

    with pytest.raises(ClassChanged, match="migration of City from version 1 failed: KeyError"):
        codec.decode(_record("City", {"name": "x"}, 1))


@pytest.mark.parametrize("result", [None, [], 5, {1: 2}])
def test_a_migration_that_gives_no_fields_is_refused(result: Any) -> None:
    codec = _codec(City, name="City", version=2, migrations={1: lambda fields: result})

    with pytest.raises(ClassChanged, match="must give a dict"):
        codec.decode(_record("City", {"name": "x"}, 1))


def test_fields_that_were_added_take_their_defaults() -> None:
    codec = _codec(City, name="City")

    first = codec.decode(_record("City", {"name": "Rome"}))
    second = codec.decode(_record("City", {"name": "Rome"}))

    assert first == City("Rome", 5, [])
    assert first.tags is not second.tags


def test_fields_that_were_removed_or_have_no_default_are_named() -> None:
    codec = _codec(City, name="City")

    with pytest.raises(ClassChanged, match=r"no longer has \['mayor'\]"):
        codec.decode(_record("City", {"name": "Rome", "mayor": "x"}))
    with pytest.raises(ClassChanged, match=r"nothing is stored for \['name'\]"):
        codec.decode(_record("City", {}))


def test_fields_come_back_in_the_order_of_the_class() -> None:
    codec = _codec(City, name="City")

    found = codec.decode(_record("City", {"tags": [], "size": 1, "name": "Rome"}))

    assert list(vars(found)) == ["name", "size", "tags"]


def test_a_class_that_became_another_kind_is_refused() -> None:
    codec = _codec(City, name="it", encode=str, decode=str)

    with pytest.raises(ClassChanged, match="another kind of class"):
        codec.decode(_record("it", {"name": "x"}))
    with pytest.raises(ClassChanged, match="another kind of class"):
        _codec(City, name="it").decode(extension(Code.CUSTOM, pack(["it", 1, 5])))


# Dataclasses and named tuples are put together without running their code


class Called(Exception):
    pass


@dataclasses.dataclass
class Strict:
    x: int
    computed: int = dataclasses.field(init=False)
    once: dataclasses.InitVar[int] = 7

    def __post_init__(self, once: int) -> None:
        if self.x < 0:
            raise Called
        self.computed = self.x + once

    def __setattr__(self, name: str, value: Any) -> None:
        if value == 66:
            raise Called
        super().__setattr__(name, value)


def test_a_dataclass_comes_back_without_its_own_code() -> None:
    codec = Codec(types=[Strict])
    strict = Strict(1)
    vars(strict).update(x=-1, computed=66)

    found = codec.decode(codec.encode(strict))

    assert vars(found) == {"x": -1, "computed": 66}


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Tight:
    x: int
    y: int = 2


@dataclasses.dataclass(frozen=True)
class Child(Tight):
    z: int = 3


def test_frozen_and_slotted_dataclasses_come_back() -> None:
    codec = Codec(types=[Tight, Child])
    value = {Tight(x=1): Child(x=1, z=4)}

    found = codec.decode(codec.encode(value))

    assert found == value
    with pytest.raises(dataclasses.FrozenInstanceError):
        next(iter(found)).x = 2


class Guarded(NamedTuple("Guarded", [("x", int), ("y", int)])):
    __slots__ = ()

    def __new__(cls, x: int, y: int) -> Guarded:
        if x > y:
            raise Called
        return super().__new__(cls, x, y)


def test_a_named_tuple_comes_back_without_its_own_code() -> None:
    codec = Codec(types=[Guarded])

    found = codec.decode(codec.encode(tuple.__new__(Guarded, (2, 1))))

    assert type(found) is Guarded
    assert tuple(found) == (2, 1)


def test_a_named_tuple_may_grow_by_fields_with_defaults() -> None:
    assert Codec().decode(_record("sample.Point", {"x": 1})) == Point(1, 0)


# Enums


def test_enum_members_are_stored_by_name_and_come_back_as_themselves() -> None:
    data = encode(Color.ROUGE)

    assert b"RED" in data
    assert Codec().decode(data) is Color.RED


def test_flags_come_back_also_when_they_are_combined() -> None:
    for flag in (Right(0), Right.READ | Right.VAST, ~Right.READ):
        assert Codec().decode(encode(flag)) is flag


def test_a_member_that_is_gone_is_named() -> None:
    codec = Codec()

    with pytest.raises(ClassChanged, match="no longer has the member 'BLUE'"):
        codec.decode(extension(Code.ENUM, pack(["sample.Color", 1, "BLUE"])))
    with pytest.raises(ClassChanged, match="no longer has the member 4096"):
        codec.decode(extension(Code.ENUM, pack(["sample.Right", 1, 4096])))
    with pytest.raises(ClassChanged):
        codec.decode(extension(Code.ENUM, pack(["sample.Color", 1, 1])))
    with pytest.raises(ClassChanged):
        codec.decode(extension(Code.ENUM, pack(["sample.Right", 1, "READ"])))
    with pytest.raises(ClassChanged):
        codec.decode(extension(Code.ENUM, pack(["sample.Note", 1, "text"])))


class Odd(enum.Enum):
    A = "a"

    @property
    def name(self) -> str:
        return "something else"


def test_an_enum_may_hide_its_name() -> None:
    codec = Codec(types=[Odd])

    assert codec.decode(codec.encode(Odd.A)) is Odd.A


def test_members_can_be_migrated() -> None:
    codec = _codec(Color, name="C", version=2, migrations={1: lambda name: name.upper()})

    assert codec.decode(extension(Code.ENUM, pack(["C", 1, "green"]))) is Color.GREEN


# Classes that say themselves how they are stored


class Temperature:
    def __init__(self, kelvin: Any) -> None:
        self.kelvin = kelvin


def test_a_custom_class_may_hold_anything_storable() -> None:
    codec = _codec(Temperature, name="T", encode=lambda t: (t.kelvin,), decode=lambda s: s)

    found = codec.decode(codec.encode([Temperature(bytearray(b"x")), Temperature({1: [()]})]))

    assert found == [(bytearray(b"x"),), ({1: [()]},)]


def test_what_a_custom_class_gives_is_refused_with_its_place() -> None:
    codec = _codec(Temperature, name="T", encode=lambda t: [t.kelvin], decode=lambda s: s)

    with pytest.raises(NotStorable) as caught:
        codec.encode({"a": Temperature(object())})

    assert caught.value.path == 'value["a"][0]'


def _raise(error: BaseException) -> Any:
    raise error


def test_encode_functions_that_fail_are_named_with_the_place() -> None:
    codec = _codec(Temperature, name="T", encode=lambda t: 1 / 0, decode=lambda s: s)

    with pytest.raises(NotStorable, match="encode= of T failed: division by zero") as caught:
        codec.encode([Temperature(1)])

    assert caught.value.path == "value[0]"
    assert isinstance(caught.value.__cause__, NotStorable)


def test_encode_functions_may_refuse_by_themselves() -> None:
    refusal = NotStorable("too cold")
    codec = _codec(Temperature, name="T", encode=lambda t: _raise(refusal), decode=lambda s: s)

    with pytest.raises(NotStorable) as caught:
        codec.encode([Temperature(1)])

    assert str(caught.value) == "value[0] cannot be stored: too cold"


def test_an_encode_function_that_gives_its_own_class_is_refused() -> None:
    codec = _codec(Temperature, name="T", encode=lambda t: Temperature(1), decode=lambda s: s)

    with pytest.raises(NotStorable, match="nested too deeply"):
        codec.encode(Temperature(1))


def test_decode_functions_that_fail_are_named() -> None:
    codec = _codec(Temperature, name="T", encode=lambda t: 1, decode=lambda s: s["x"])

    with pytest.raises(ClassChanged, match="decode= of T failed: TypeError"):
        codec.decode(codec.encode([Temperature(1)]))


def test_decode_functions_may_raise_our_own_errors() -> None:
    codec = _codec(
        Temperature, name="T", encode=lambda t: 1, decode=lambda s: _raise(FormatError("cold"))
    )

    with pytest.raises(FormatError, match="cold"):
        codec.decode(codec.encode([[(Temperature(1),)]]))


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: ((v,),), lambda v: {1: v}])
def test_interrupts_pass_through(interrupt: type[BaseException], wrap: Any) -> None:
    codec = _codec(
        Temperature,
        name="T",
        encode=lambda t: _raise(interrupt()) if t.kelvin else 1,
        decode=lambda s: _raise(interrupt()),
    )

    with pytest.raises(interrupt):
        codec.encode(wrap(Temperature(1)))
    with pytest.raises(interrupt):
        codec.decode(codec.encode(wrap(Temperature(0))))
    with pytest.raises(NotStorable):
        codec.encode(wrap(object()))


# What would be lost, or would run


class Count(int):
    """A number that raises when its code runs, once that is switched on."""

    armed = False

    def __new__(cls, value: int) -> Count:
        if cls.armed:
            raise Called
        return int.__new__(cls, value)

    def __eq__(self, other: object) -> bool:
        if self.armed:
            raise Called
        return int(self) == other

    __hash__ = int.__hash__


class Counted(Count, enum.Flag):  # type: ignore[misc]
    ONE = 1
    TWO = 2


def test_flags_of_a_class_of_its_own_are_refused_and_nothing_of_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = Counted.ONE
    monkeypatch.setattr(Count, "armed", True)

    with pytest.raises(NotStorable, match="class of its own"):
        encode(member)
    with pytest.raises(InvalidInput, match="class of its own"):
        Registry().register(Counted)
    for bits in (1, 3):
        data = extension(Code.ENUM, pack([f"{__name__}.Counted", 1, bits]))
        with pytest.raises(UndeclaredClass):
            Codec().decode(data)


class Placed:
    __slots__ = ("x",)


@dataclasses.dataclass
class Hiding(Placed):
    __slots__ = ("x",)
    x: int


def test_a_slot_that_hides_that_of_a_base_is_refused() -> None:
    with pytest.raises(NotStorable, match="slot x hides"):
        encode(Hiding(1))


@dataclasses.dataclass
class Both(Placed):
    x: int


def test_a_value_that_a_slot_hides_is_refused() -> None:
    both = Both(1)
    assert Codec().decode(encode(both)) == both

    both.__dict__["x"] = 2

    with pytest.raises(NotStorable, match="would be lost"):
        encode(both)
