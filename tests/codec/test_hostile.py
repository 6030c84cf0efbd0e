"""Bytes from anywhere raise a format error: no code runs, no memory or stack runs out."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ropewalk.codec import Codec, decode
from ropewalk.codec.msgpack import Code, extension, pack
from ropewalk.errors import NotAllowed, UndeclaredClass

REPOSITORY = Path(__file__).parents[2]
MEGABYTE = 1 << 20


def _run(program: str, *arguments: str) -> str:
    """Run a program in an interpreter of its own, and give what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


# Names

HOSTILE_NAMES = [
    "os.system",
    "builtins.eval",
    "builtins.__import__",
    "subprocess.Popen",
    "antigravity.fly",
    "wave.Wave_read",
    "tests.codec.undeclared.Trap",
    "..os",
    "__main__.run",
]

WATCHED = """
    import sys

    from ropewalk.codec import Codec, Registry
    from ropewalk.codec.msgpack import Code
    from ropewalk.codec.msgpack import extension, pack
    from ropewalk.errors import UndeclaredClass

    codecs = [Codec(), Codec(Registry()), Codec(pickle_key=bytes(16))]
    name = sys.argv[1]
    contents = {
        Code.RECORD: [[name, 1, {"args": "echo"}], [name, 1, ["x"], {"x": 1, "y": 2}]],
        Code.CUSTOM: [[name, 1, "echo"], [name, 1, {"args": ["echo"]}]],
        Code.ENUM: [[name, 1, "echo"], [name, 1, 5]],
    }
    stored = [extension(code, pack(one)) for code, many in contents.items() for one in many]
    stored += [b"\\x91" + one for one in stored] + [extension(2, b"\\x91" + one) for one in stored]
    try:
        codecs[0].decode(stored[0])
    except UndeclaredClass:
        pass
    modules = set(sys.modules)
    events = []
    sys.addaudithook(lambda event, arguments: events.append(event))
    undeclared = 0
    for codec in codecs:
        for data in stored:
            try:
                codec.decode(data)
            except UndeclaredClass as exc:
                assert exc.name == name
                undeclared += 1
    seen = set(events)
    assert undeclared == len(codecs) * len(stored)
    assert set(sys.modules) == modules
    print(sorted(seen))
"""


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_stored_name_never_makes_the_decoder_import_or_call_anything(name: str) -> None:
    assert _run(WATCHED, name) == "[]\n"


def test_a_class_that_could_be_imported_but_was_not_declared_stays_a_name() -> None:
    stored = extension(Code.RECORD, pack(["fractions.Fraction", 1, {}]))

    with pytest.raises(UndeclaredClass) as caught:
        decode(stored)

    assert caught.value.name == "fractions.Fraction"


# Memory and stack

LIMITED = """
    import pathlib
    import resource
    import sys
    import threading

    import numpy

    from ropewalk.codec import Codec, check_canonical
    from ropewalk.codec.decoder import Decoder
    from ropewalk.errors import FormatError

    data = pathlib.Path(sys.argv[1]).read_bytes()
    outcomes = []

    def run():
        for read in (check_canonical, Codec().decode, Decoder(Codec()).decode):
            try:
                read(data)
            except FormatError:
                outcomes.append("refused")
            except BaseException as exc:
                outcomes.append(repr(exc))
            else:
                outcomes.append("read")

    threading.stack_size(int(sys.argv[2]))
    thread = threading.Thread(target=run)
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    thread.start()
    thread.join()
    print(*outcomes)
"""


def _read_limited(tmp_path: Path, data: bytes, stack: int, room: int = 64 * MEGABYTE) -> list[str]:
    file = tmp_path / "data"
    file.write_bytes(data)
    return _run(LIMITED, str(file), str(stack), str(room)).split()


def _nested(lists: int, deep: int, levels: int, inner: bytes) -> bytes:
    """Lists in tuples in lists: `lists` of them down to the third tuple, `deep` below."""
    data = inner
    for level in range(levels, 0, -1):
        data = extension(Code.TUPLE, b"\x91" * (lists if level <= 3 else deep) + data)
    return b"\x91" * lists + data


def _bomb(levels: int) -> bytes:
    """A small text that would be very large if every level repeated the one below."""
    data = b"\x01"
    for _ in range(levels):
        data = extension(Code.TUPLE, b"\xdc\x00\x10" + data * 16)
        if len(data) > MEGABYTE:
            break
    return data


SMALL_STACK = 256 << 10
REFUSED_ON_A_SMALL_STACK: dict[str, bytes] = {
    "a list of four billion": b"\xdd\xff\xff\xff\xff",
    "a dict of four billion": b"\xdf\xff\xff\xff\xff",
    "a text of four billion": b"\xdb\xff\xff\xff\xffabc",
    "bytes of four billion": b"\xc6\xff\xff\xff\xffabc",
    "an extension of four billion": b"\xc9\xff\xff\xff\xff\x02abc",
    "many lists of sixteen million": b"\xdd\x00\xff\xff\xff" * 50,
    "lists of four billion in tuples": extension(Code.TUPLE, b"\xdd\xff\xff\xff\xff" * 9),
    "an array of many elements": extension(
        Code.ARRAY, pack(["<f8", [2**60, 2**60], "C", b"\0" * 8])
    ),
    "an array of vast elements": extension(Code.ARRAY, pack(["<U2000000000", [1], "C", b"\0" * 8])),
    "an array of many empty rows": extension(Code.ARRAY, pack(["<f8", [2**61, 0], "C", b""])),
    "a scalar of vast size": extension(Code.SCALAR, pack(["<U2000000000", b"\0" * 8])),
    "a decimal of a vast exponent": extension(Code.DECIMAL, b"1E+" + b"9" * 1000),
    "a zone of a vast name": extension(Code.TIME, pack([1, 2, 3, 4, 0, "a/" * 100_000])),
    "a class of a vast name": extension(Code.RECORD, pack(["x" * MEGABYTE, 1, {}])),
    "tuples in tuples": _nested(1, 1, 40, b"\x01"),
    "tuples in tuples without end": _nested(1, 1, 5000, b"\x01"),
    "many lists in the fourth tuple": _nested(1, 1000, 8, b"\x01"),
    "dicts in the fifth tuple": _nested(1, 1, 4, extension(2, b"\x81\xa1a" * 70 + b"\x01")),
}


@pytest.mark.parametrize("name", REFUSED_ON_A_SMALL_STACK)
def test_hostile_bytes_are_refused_in_little_memory_and_stack(name: str, tmp_path: Path) -> None:
    data = REFUSED_ON_A_SMALL_STACK[name]

    assert _read_limited(tmp_path, data, SMALL_STACK) == ["refused"] * 3


LARGEST_STACK = 5 * MEGABYTE
DEEPEST: dict[str, bytes] = {
    "lists as deep as they are read": b"\x91" * 1022 + b"\x01",
    "lists without end": b"\x91" * MEGABYTE,
    "dicts without end": b"\x81\xa1a" * 100_000,
    "everything as deep as it can be": _nested(1021, 64, 32, b"\x01"),
    "a deep date at the deepest place": _nested(
        1021, 64, 32, extension(Code.DATE, b"\x91" * 1021 + b"\x01")
    ),
}


@pytest.mark.parametrize("name", DEEPEST)
def test_the_deepest_bytes_fit_into_the_stack_that_threads_have(name: str, tmp_path: Path) -> None:
    outcomes = _read_limited(tmp_path, DEEPEST[name], LARGEST_STACK)

    assert outcomes[:2] == ["refused"] * 2
    assert outcomes[2] in ("refused", "read")


def test_what_repeats_is_read_in_memory_that_follows_its_size(tmp_path: Path) -> None:
    outcomes = _read_limited(tmp_path, _bomb(20), SMALL_STACK * 4, room=600 * MEGABYTE)

    assert outcomes == ["read"] * 3


def test_deep_values_are_refused_on_a_small_stack() -> None:
    program = """
        import sys
        import threading

        from ropewalk.codec import encode
        from ropewalk.errors import NotStorable

        sys.setrecursionlimit(100_000)
        refused = []

        def run():
            for wrap in (lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: ([[v]],)):
                value = 1
                held = []
                for _ in range(500):
                    value = wrap(value)
                    held.append(value)
                try:
                    encode(value)
                except NotStorable:
                    refused.append(True)
                while held:
                    held.pop(0)

        threading.stack_size(2 << 20)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        print(len(refused))
    """

    assert _run(program) == "4\n"


# An interrupt that comes while ormsgpack works is raised in the first line of a hook.

INTERRUPTED = """
    import signal
    import sys

    from ropewalk.codec import Codec, check_canonical, encode
    from ropewalk.codec.decoder import Decoder

    codec = Codec()
    value = [(1, (2, (3,))) for _ in range(20)]
    data = encode(value)
    actions = {
        "encode": lambda: codec.encode(value),
        "check": lambda: check_canonical(data),
        "decode": lambda: Decoder(codec).decode(data),
    }
    hooks = {"encode": "_hook", "check": "_check_extension", "decode": "_hook"}
    hook = hooks[sys.argv[1]]
    calls = 0

    def trace(frame, event, argument):
        global calls
        if event == "call" and frame.f_code.co_name == hook:
            calls += 1
            if calls == int(sys.argv[2]):
                raise KeyboardInterrupt
        return None

    sys.settrace(trace)
    try:
        actions[sys.argv[1]]()
    except KeyboardInterrupt:
        print("interrupted")
    except Exception as exc:
        print(repr(exc))
    else:
        print("nothing")
"""


@pytest.mark.parametrize("action", ["encode", "check", "decode"])
@pytest.mark.parametrize("call", [1, 2, 3, 7])
def test_an_interrupt_at_the_first_line_of_a_hook_is_not_lost(action: str, call: int) -> None:
    assert _run(INTERRUPTED, action, str(call)) == "interrupted\n"


# Pickles

KEY = b"0123456789abcdef"


class Trap:
    """A pickle of it shows whether it was loaded."""

    loaded: list[str]

    def __reduce__(self) -> Any:
        return (_spring, ())


SPRUNG: list[int] = []


def _spring() -> str:
    SPRUNG.append(1)
    return "sprung"


def test_with_a_key_objects_without_another_form_are_pickled() -> None:
    codec = Codec(pickle_key=KEY)

    found = codec.decode(codec.encode({"a": [range(3), 1 + 2j]}))

    assert found == {"a": [range(3), 1 + 2j]}


@pytest.mark.parametrize(
    "other",
    [Codec(), Codec(pickle_key=b"another key 1234")],
    ids=["no key", "another key"],
)
def test_a_pickle_is_not_loaded_without_its_key(other: Codec) -> None:
    data = Codec(pickle_key=KEY).encode([(Trap(),)])
    SPRUNG.clear()

    with pytest.raises(NotAllowed):
        other.decode(data)

    assert not SPRUNG


def test_a_pickle_that_was_tampered_with_is_not_loaded() -> None:
    codec = Codec(pickle_key=KEY)
    data = codec.encode(Trap())
    SPRUNG.clear()

    for position in range(3, len(data)):
        bent = bytearray(data)
        bent[position] ^= 1
        with pytest.raises(NotAllowed):
            codec.decode(bytes(bent))
    for sealed in (b"", b"x", bytes(32)):
        with pytest.raises(NotAllowed):
            codec.decode(extension(Code.PICKLE, sealed))

    assert not SPRUNG
    assert codec.decode(data) == "sprung"


def test_what_cannot_be_pickled_is_refused_with_its_place() -> None:
    with pytest.raises(TypeError) as caught:
        Codec(pickle_key=KEY).encode({"a": [lambda: None]})

    assert str(caught.value).startswith('value["a"][0] cannot be stored: a function')


@pytest.mark.parametrize("key", [b"", b"short", "0123456789abcdef", None.__class__])
def test_a_weak_key_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        Codec(pickle_key=key)


def test_a_key_does_not_show() -> None:
    assert KEY.decode() not in repr(Codec(pickle_key=KEY).pickle)
