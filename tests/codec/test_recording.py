"""Bytes that name classes of the program: none of their code runs, whoever reads them."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ropewalk import Timeline
from ropewalk.codec import Codec, inspection_codec
from ropewalk.codec.msgpack import Code, extension, pack
from ropewalk.codec.registry import member_bytes
from ropewalk.errors import InvalidInput, MergeConflict, RopewalkError
from tests.cli.support import here
from tests.codec import recording

MODULE = recording.__name__
FIELDS: dict[str, Any] = {"x": [1], "y": "two"}


def _record(name: str, fields: dict[str, Any] = FIELDS) -> bytes:
    return extension(Code.RECORD, pack([name, 1, fields]))


def _member(name: str, member: Any) -> bytes:
    return extension(Code.ENUM, member_bytes(name, 1, member))


def _custom(name: str, content: Any) -> bytes:
    return extension(Code.CUSTOM, pack([name, 1, content]))


RECORDS = """
    Data Slotted Attrs Model Struct PostStruct Pair Dying Watched WithMeta Callable Failure Child
    Alias Alias.x holder holder.x Holder.Data Data.x Data.__init__ Data.__class__ Meta Mood Bits
    WithMeta.__call__ WithMeta.x WithMeta.__mro__ missing missing.Data note made_list EVENTS
    __getattr__ __dict__ __builtins__ __loader__.exec_module Model.model_construct
""".split()
NAMED = {f"{MODULE}.{name}": name for name in RECORDS}
ELSEWHERE = (
    "os.system builtins.eval builtins.dict builtins.type builtins.object types.SimpleNamespace "
    "antigravity.fly this.s functools.partial dataclasses.Field enum.Enum subprocess.Popen "
    "not.there.X X ..X a..b . typing.NamedTuple pathlib.PosixPath"
).split()

STORED: dict[str, bytes] = {
    **{f"record {NAMED[name]}": _record(name) for name in NAMED},
    **{f"record {name}": _record(name) for name in ELSEWHERE},
    **{f"partial {NAMED[name]}": _record(name, {"x": 1}) for name in NAMED},
    **{f"other {NAMED[name]}": _record(name, {"x": 1, "y": 2, "_z": 3, "+a": 4}) for name in NAMED},
    **{f"custom {NAMED[name]}": _custom(name, FIELDS) for name in NAMED},
    **{f"member {NAMED[name]}": _member(name, "GOOD") for name in NAMED},
    "member of no enum": _member("os.system", "echo"),
    "member BAD": _member(f"{MODULE}.Mood", "BAD"),
    "member __class__": _member(f"{MODULE}.Mood", "__class__"),
    "member 1": _member(f"{MODULE}.Mood", 1),
    **{f"bits {bits}": _member(f"{MODULE}.Bits", bits) for bits in (0, 1, 5, 7, 8, -1, 2**70)},
    "all of a model": _record(f"{MODULE}.Model", {**FIELDS, "_z": [1]}),
}


def _dict(key: bytes) -> bytes:
    return extension(Code.DICT, b"\x92" + key + b"\x01")


WRAPS: dict[str, Callable[[bytes], bytes]] = {
    "value": lambda data: data,
    "item": lambda data: b"\x92" + data + data,
    "key": _dict,
    "member": lambda data: extension(Code.SET, b"\x91" + data),
    "frozen member": lambda data: extension(Code.FROZENSET, b"\x91" + data),
    "in tuples": lambda data: extension(
        Code.TUPLE, b"\x91" + extension(Code.TUPLE, b"\x91" + data)
    ),
    "key in tuples": lambda data: _dict(extension(Code.TUPLE, b"\x92\x01" + data)),
    "member in a tuple": lambda data: extension(
        Code.SET,
        b"\x91" + extension(Code.TUPLE, b"\x91" + extension(Code.FROZENSET, b"\x91" + data)),
    ),
    "key in a field": lambda data: _dict(
        extension(Code.RECORD, b"\x93" + pack(f"{MODULE}.Key") + b"\x01\x81\xa1x" + data)
    ),
}


def _declared() -> Codec:
    """Everything is declared that can be without functions of its own."""
    codec = Codec(classes="declared")
    for cls in [one for one in vars(recording).values() if type.__instancecheck__(type, one)]:
        if type.__dict__["__module__"].__get__(cls) == MODULE:
            try:
                codec.registry.register(cls)
            except InvalidInput:
                continue
    return codec


CODECS: dict[str, Codec] = {
    "plain": Codec(),
    "closed": Codec(classes="declared"),
    "declared": _declared(),
    "showing": Codec(undeclared="show"),
    "looking": inspection_codec,
}


@pytest.fixture(autouse=True)
def events() -> Iterator[list[str]]:
    """What ran of the classes; a test that leaves something there fails."""
    gc.collect()
    recording.EVENTS.clear()
    modules = set(sys.modules)
    yield recording.EVENTS
    gc.collect()
    assert recording.EVENTS == []
    assert {name for name in set(sys.modules) - modules if name in ("antigravity", "this")} == set()


def _read(codec: Codec, data: bytes) -> bool:
    """Whether something came back. It is dropped, which may not run anything either."""
    try:
        codec.decode(data)
    except RopewalkError:
        return False
    return True


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_no_code_of_a_class_runs_when_it_is_decoded(
    codec: Codec, wrap: Callable[[bytes], bytes], events: list[str]
) -> None:
    for name, data in STORED.items():
        _read(codec, wrap(data))
        gc.collect(0)

        assert not events, (name, events)


PLAIN = ["Data", "Slotted", "Attrs", "Struct", "Pair"]


@pytest.mark.parametrize("mode", ["plain", "declared"])
def test_what_is_plain_does_come_back_without_its_code(mode: str) -> None:
    codec = CODECS[mode]

    for name in PLAIN:
        assert _read(codec, STORED[f"record {name}"]), name
    assert _read(codec, STORED["all of a model"])
    assert _read(codec, STORED["member Mood"])
    assert all(_read(codec, STORED[f"bits {bits}"]) for bits in (0, 1, 5, 7))
    for bits in (8, -1, 2**70):
        assert not _read(codec, STORED[f"bits {bits}"])


def test_what_is_not_plain_does_not_come_back() -> None:
    for name in set(RECORDS) - {*PLAIN}:
        assert not _read(CODECS["plain"], STORED[f"record {name}"]), name
    for name in ELSEWHERE:
        assert not _read(CODECS["plain"], STORED[f"record {name}"]), name
    for wrap in ("key", "member", "frozen member", "key in tuples", "member in a tuple"):
        for name in PLAIN:
            assert not _read(CODECS["plain"], WRAPS[wrap](STORED[f"record {name}"])), (wrap, name)


def test_the_closed_mode_brings_nothing_back() -> None:
    for name, data in STORED.items():
        assert not _read(CODECS["closed"], data), name


def test_a_module_that_is_no_module_is_not_asked(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            events.append(f"module __getattribute__ {name}")
            return super().__getattribute__(name)

        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            events.append("module __dict__")
            return {}

    monkeypatch.setitem(sys.modules, "lazy_module", Lazy("lazy_module"))
    monkeypatch.setitem(sys.modules, "no_module", recording.holder)
    events.clear()

    for name in ("lazy_module.Data", "no_module.Data", "no_module.Data.x"):
        assert not _read(CODECS["plain"], _record(name))


# Whole stores.

KEPT = [name for name in STORED if name.startswith(("record", "member", "bits", "all"))]


def _hostile(wrap: str, change: Any) -> dict[str, Any]:
    """A state of bytes that a hostile program would write, as stand-ins."""
    state: dict[str, Any] = {"same": change}
    for name in KEPT:
        try:
            state[name] = inspection_codec.decode(WRAPS[wrap](STORED[name]))
        except RopewalkError:
            continue
    return state


@pytest.fixture(params=["value", "key", "member", "key in tuples"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with a history of such states: two branches that both changed them."""
    path = tmp_path / ".ropewalk"
    with Timeline("agent", path, codec=inspection_codec) as writer:
        first = _hostile(request.param, 1)
        writer.checkpoint({**first, "n": 1})
        writer.branch("other")
        writer.checkpoint({**dict(reversed(first.items())), "m": 2})
        writer.switch_branch("main")
        writer.checkpoint({**first, "n": 2, "record Data": "another"})
    recording.EVENTS.clear()
    return path


@pytest.mark.parametrize("classes", ["plain", "declared"])
def test_no_code_of_a_class_runs_when_a_store_is_compared_merged_and_checked(
    store: Path, classes: Any, events: list[str]
) -> None:
    with Timeline("agent", store, classes=classes) as timeline:
        steps = timeline.history()
        timeline.diff(steps[-1].id, steps[0].id)
        assert not events
        with suppress(MergeConflict):
            timeline.merge("other")
        assert not events

        assert timeline.store.check(read_data=True).ok
        assert not events


def test_no_code_of_a_class_runs_when_the_command_line_shows_a_store(
    store: Path, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)

    for command in ("show", "log", "tree", "diff main other", "check --read-data", "merge other"):
        done = here(*command.split())
        assert not events, (command, done.err)
    assert f"{MODULE}.Data" in here("show").out
