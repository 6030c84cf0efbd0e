"""Plain data classes come back undeclared, in a program that has loaded them, and only there."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import importlib
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import attrs
import msgspec
import pydantic
import pytest

from ropewalk import MemoryStore, NotStorable, ThreadCheckpointer, Timeline, Versioned
from ropewalk.codec import Codec, decode, encode
from ropewalk.errors import ClassChanged, InvalidInput, UndeclaredClass
from tests.strategies import same

T = TypeVar("T")


@dataclasses.dataclass
class Ticket:
    id: int
    tags: list[str] = dataclasses.field(default_factory=list)

    class Part(NamedTuple):
        name: str
        price: float = 1.5


@attrs.define(slots=False)
class Shop:
    name: str
    tickets: list[Ticket] = attrs.field(factory=list)


@attrs.frozen(cache_hash=True)
class Place:
    street: str
    number: int = 1

    @functools.cached_property
    def label(self) -> str:
        return f"{self.street} {self.number}"


class Mood(enum.Enum):
    GOOD = "good"


class Right(enum.Flag):
    READ = 1
    WRITE = 2
    ALL = 3


class Order(pydantic.BaseModel):
    id: int
    _seen: int = pydantic.PrivateAttr(default=0)


class Row(msgspec.Struct, frozen=True):
    id: int
    name: str = "n"


class Named(Protocol):
    name: str


@dataclasses.dataclass
class Typed(Named, abc.ABC, Generic[T]):
    name: str
    held: Any = None


def _order() -> Order:
    made = Order(id=1)
    made._seen = 7
    return made


VALUES: dict[str, Any] = {
    "dataclass": Ticket(1, ["a"]),
    "nested class": Ticket.Part("x"),
    "attrs": Shop("s", [Ticket(2)]),
    "frozen attrs": Place("Main"),
    "enum": Mood.GOOD,
    "flag": Right.READ | Right.WRITE,
    "no flag": Right(0),
    "model": _order(),
    "struct": Row(1),
    "protocol": Typed("n"),
}
KEYS = {name: VALUES[name] for name in ("nested class", "frozen attrs", "enum", "flag", "struct")}


def _through_timeline(value: Any) -> Any:
    with MemoryStore() as store:
        Timeline("a", store).checkpoint({"v": value})
        state: Any = Timeline("a", store).get_state()
        return state["v"]


def _through_versioned(value: Any) -> Any:
    with MemoryStore() as store:
        writer = Versioned(store)
        writer["v"] = value
        writer.commit()
        return Versioned(store)["v"]


def _through_thread(value: Any) -> Any:
    with MemoryStore() as store:
        config = {"thread_id": "t"}
        ThreadCheckpointer[Any](store).put_state(config, {"v": value})
        state: Any = ThreadCheckpointer[Any](store).get_state(config)
        return state["v"]


FACES = {
    "codec": lambda value: decode(encode(value)),
    "timeline": _through_timeline,
    "versioned": _through_versioned,
    "thread": _through_thread,
}


@pytest.mark.parametrize("face", FACES.values(), ids=FACES)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_plain_object_comes_back_through_every_face(value: Any, face: Any) -> None:
    assert same(face(value), value)
    assert same(face([{"in": (value,)}]), [{"in": (value,)}])


@pytest.mark.parametrize("face", FACES.values(), ids=FACES)
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_plain_object_comes_back_as_a_key_and_in_a_set(key: Any, face: Any) -> None:
    hash(key)
    value = [{key: 1}, {(1, key)}, frozenset([key])]

    found = face(value)
    assert same(found, value)
    assert found[0][key] == 1


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_in_the_closed_mode_nothing_plain_is_stored_or_read(value: Any) -> None:
    closed = Codec(classes="declared")

    with pytest.raises(NotStorable, match=r"not declared.*types=.*pickle_key="):
        closed.encode([value])
    with pytest.raises(UndeclaredClass, match="did not declare"):
        closed.decode(encode([value]))
    declared = Codec(types=[type(value), Ticket], classes="declared")
    assert same(declared.decode(declared.encode(value)), value)


def test_there_are_two_modes_and_a_codec_has_its_own() -> None:
    with pytest.raises(InvalidInput, match="'plain' or 'declared'"):
        Codec(classes="all")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="its own types, pickle key and classes"):
        Versioned(codec=Codec(), classes="declared")


# What is computed or remembered beside the fields.


def test_a_cached_property_and_a_cached_hash_are_left_out() -> None:
    place = Place("Main")
    before = encode(place)
    hash(place)
    assert place.label == "Main 1"

    assert encode(place) == before
    found = decode(before)
    assert (found.label, hash(found)) == ("Main 1", hash(place))


# What is not plain.


class Child(Ticket):
    pass


@dataclasses.dataclass
class Dying:
    x: int = 1

    def __del__(self) -> None:
        pass


@dataclasses.dataclass
class Failure(Exception):
    x: int = 1


@dataclasses.dataclass
class Listing(list[int]):
    x: int = 1


@dataclasses.dataclass
class Property:
    x: int = 1


Property.x = property(lambda self: 5, lambda self, value: None)  # type: ignore[assignment]


class PostInit(msgspec.Struct):
    x: int = 1

    def __post_init__(self) -> None:
        pass


class Box(pydantic.BaseModel, Generic[T]):
    content: T


def _local() -> Any:
    @dataclasses.dataclass
    class Local:
        x: int = 1

    return Local()


def _moved() -> Any:
    made = dataclasses.make_dataclass("Moved", ["x"])
    made.__module__ = __name__
    return made(1)


REFUSED: dict[str, tuple[Any, str]] = {
    "by inheritance": (lambda: Child(1), "itself, although a base is one"),
    "__del__": (Dying, "it has __del__"),
    "exception": (Failure, "derives from"),
    "list": (Listing, "derives from list"),
    "property": (Property, "field x is a property"),
    "__post_init__": (PostInit, "__post_init__, which msgspec runs"),
    "generic": (lambda: Box[int](content=1), "generic with parameters"),
    "local": (_local, "made inside a function"),
    "elsewhere": (_moved, "does not lead to it"),
}


@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_plain_is_refused_with_the_reason_and_what_would_help(
    make: Any, reason: str
) -> None:
    with pytest.raises(NotStorable, match=reason) as caught:
        encode({"a": [make()]})

    assert caught.value.path == 'value["a"][0]'
    assert "register" in str(caught.value) and "pickle_key=" in str(caught.value)


@dataclasses.dataclass(eq=False)
class OwnHash:
    x: Any = 1

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return self is other


@attrs.frozen
class ByFunction:
    x: str = attrs.field(default="a", eq=str.lower)


@dataclasses.dataclass(frozen=True)
class Holder:
    held: Any


@pytest.mark.parametrize("key", [OwnHash(), ByFunction(), Holder(OwnHash()), (1, (OwnHash(),))])
def test_a_class_with_a_hash_of_its_own_is_no_key(key: Any) -> None:
    for value in ({key: 1}, {key}, frozenset([key]), [{1: {2: {key: 3}}}]):
        with pytest.raises(NotStorable, match="cannot be a key or a member of a set"):
            encode(value)
    assert encode([key])


# Classes that change.


@dataclasses.dataclass
class Grown:
    x: int
    a: Any = (1, "b")
    b: Any = dataclasses.field(default_factory=dict)
    c: Any = dataclasses.field(default_factory=lambda: [1])


def test_a_field_that_is_not_stored_takes_a_default_that_needs_no_code() -> None:
    name = f"{__name__}.Grown"
    older = Codec()
    older.registry.register(dataclasses.make_dataclass("Old", ["x", "c"]), name=name)
    oldest = Codec()
    oldest.registry.register(dataclasses.make_dataclass("Oldest", ["x"]), name=name)
    (old,) = [one.cls for one in [older.registry.named(name)] if one]
    (very_old,) = [one.cls for one in [oldest.registry.named(name)] if one]

    assert decode(older.encode(old(1, 2))) == Grown(1, (1, "b"), {}, 2)
    with pytest.raises(ClassChanged, match=r"nothing is stored for \['c'\]"):
        decode(oldest.encode(very_old(1)))


def test_a_module_that_is_loaded_again_gives_its_new_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "from dataclasses import dataclass\n@dataclass\nclass Thing:\n    x: int\n"
    (tmp_path / "reloaded_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module("reloaded_module")
    first = module.Thing
    data = encode(first(1))
    assert type(decode(data)) is first

    importlib.reload(module)

    assert type(decode(data)) is module.Thing is not first
    with pytest.raises(NotStorable, match="does not lead to it"):
        encode(first(1))
    del sys.modules["reloaded_module"]
    with pytest.raises(UndeclaredClass, match="has not loaded: import reloaded_module"):
        decode(data)


# Other processes.

APP = """
from dataclasses import dataclass
from enum import Enum
import attrs, msgspec, pydantic
from ropewalk import Versioned

class Kind(Enum):
    BUG = 1

@dataclass(frozen=True)
class Ticket:
    id: int
    kind: Kind = Kind.BUG

@attrs.define
class Crate:
    goods: list

class Model(pydantic.BaseModel):
    t: Ticket

class Row(msgspec.Struct):
    t: Ticket

VALUE = [Ticket(1), Crate([Ticket(2)]), Model(t=Ticket(3)), Row(Ticket(4)), {Ticket(5): Kind.BUG}]

def save():
    state = Versioned("store")
    state["v"] = VALUE
    state.commit()

def look():
    assert Versioned("store")["v"] == VALUE
    print("same")

if __name__ == "__main__":
    save()
    look()
"""


def _run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_objects_come_back_in_a_process_that_has_loaded_their_classes(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    _run(tmp_path, "-c", "import app; app.save()")

    assert _run(tmp_path, "-c", "import app; app.look()") == "same"


def test_a_class_of_the_main_program_is_found_by_those_who_import_it_too(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)

    assert _run(tmp_path, "app.py") == "same"
    assert _run(tmp_path, "-c", "import app; app.look()") == "same"
    _run(tmp_path, "-c", "import app; app.save()")
    assert _run(tmp_path, "-m", "app") == "same"


@pytest.mark.parametrize("module", ["app", "package.app"])
def test_a_process_that_has_not_loaded_a_class_names_the_module(
    tmp_path: Path, module: str
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    (tmp_path / f"{module.replace('.', '/')}.py").write_text(APP)
    _run(tmp_path, "-c", f"from {module} import save; save()")
    look = f"""
        import package
        import sys
        from ropewalk import Versioned
        from ropewalk.errors import UndeclaredClass
        try:
            Versioned("store")["v"]
        except UndeclaredClass as error:
            print(error)
        assert "{module}" not in sys.modules
    """

    assert f"has not loaded: import {module} before you read" in _run(
        tmp_path, "-c", textwrap.dedent(look)
    )
