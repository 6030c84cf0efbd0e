"""The grown list is read back and verified, beside one compressed and checked blob."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from statistics import median
from typing import Any

from bench._clock import Stopwatch
from bench._model import Engine, EngineInfo, Measured, Metric, Scenario, Target
from bench._text import Text
from bench._values import message
from bench.scenarios._sides import OURS


def _grown(info: EngineInfo, messages: list[Any]) -> Engine:
    engine = info.open()
    for count in range(1, len(messages) + 1):
        engine.commit(messages[:count])
    return engine


def _at_once(info: EngineInfo, messages: list[Any]) -> Engine:
    engine = info.open()
    engine.commit(messages)
    return engine


def _blob(value: Any) -> Callable[[], Any]:
    """Reads one blob of msgpack under zstd, after checking the hash of the msgpack."""
    import ormsgpack
    import zstandard

    content = ormsgpack.packb(value)
    data, digest = zstandard.ZstdCompressor(level=3).compress(content), sha256(content).digest()
    expand = zstandard.ZstdDecompressor().decompress

    def read() -> Any:
        found = expand(data)
        if sha256(found).digest() != digest:
            raise AssertionError("the blob is damaged")
        return ormsgpack.unpackb(found)

    return read


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Read in turn from the grown value, from the value written at once, and from the blob."""
    text = Text(1)
    messages = [message(text, number) for number in range(size["messages"])]
    sides = {
        "grown": _grown(info, messages).read,
        "at_once": _at_once(info, messages).read,
        "blob": _blob(messages),
    }
    watches = {name: Stopwatch() for name in sides}
    for name, read in sides.items():
        assert read() == messages, f"{name} did not read back"
    for _ in range(size["reads"]):
        for name, read in sides.items():
            watches[name](read)
    figures = {f"{name}_ms": median(watch.cpu) * 1e3 for name, watch in watches.items()}
    figures["ratio"] = figures["grown_ms"] / figures["blob_ms"]
    figures["at_once_ratio"] = figures["at_once_ms"] / figures["blob_ms"]
    return Measured(figures)


SCENARIO = Scenario(
    name="read",
    title="The list of 2,000 messages (2 MB) read back and verified",
    run=run,
    engines=(OURS,),
    metrics=(
        Metric("ratio", "grown by commits / blob", "x"),
        Metric("at_once_ratio", "written at once / blob", "x"),
        Metric("grown_ms", "CPU, grown by 2,000 commits", "ms"),
        Metric("at_once_ms", "CPU, written at once", "ms"),
        Metric("blob_ms", "CPU, one blob", "ms"),
    ),
    size={"messages": 2000, "reads": 60},
    quick={"messages": 300, "reads": 20},
    targets=(Target("ratio", 2.0, "reading it over reading one blob"),),
    notes=(
        "The blob is msgpack under zstd level 3; the SHA-256 of the msgpack is checked before "
        "it is decoded. The sides read in turn in one process.",
    ),
    order=60,
)
