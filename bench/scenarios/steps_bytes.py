"""The folder of a chat and of a list that grow, while it is open and after it was closed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from bench._clock import Stopwatch, folder_bytes
from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._text import Noise, Text
from bench._values import message, short_message
from bench.scenarios._sides import STEPS_ON_DISK
from bench.scenarios.timeline_list import Growing

_FILES = "timeline-files"
_TEXTS = {"text": Text, "random": Noise}
_WORKS = {"chat": ("steps", 1, message), "list": ("steps", 2, short_message)}
"""What says how many steps it takes, through what that is divided, and what a step adds."""


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Take the steps of each work with each text."""
    found = Measured()
    for work, (key, parts, make) in _WORKS.items():
        for text, source in _TEXTS.items():
            growing = Growing(source(1), make)
            one = _grown(info, growing, size[key] // parts)
            found.figures |= {f"{work}_{text}_{name}": value for name, value in one.items()}
            if work == "chat":
                found.notes.append(f"{text}: {_squeezed(growing)}")
    return found


def _grown(info: EngineInfo, work: Growing, count: int) -> dict[str, float]:
    with TemporaryDirectory() as name:
        place, watch = Place(Path(name)), Stopwatch()
        engine = info.open(place)
        for step in islice(work.steps(), count):
            watch(partial(step, engine))
        opened = folder_bytes(place.folder)
        watch(engine.close)
        closed, raw = folder_bytes(place.folder), work.payload()
        again = info.open(place)
        work.check(again)
        again.close()
    return {
        "open": opened / raw,
        "closed": closed / raw,
        "cpu_ms": sum(watch.cpu) / count * 1e3,
        "wall_ms": sum(watch.wall) / count * 1e3,
    }


def _squeezed(work: Growing) -> str:
    import zstandard

    contents = [one["content"].encode() for one in work.state["messages"]]
    squeeze = zstandard.ZstdCompressor(level=3).compress
    runs = [b"".join(contents[at : at + 64]) for at in range(0, len(contents), 64)]
    raw = sum(map(len, contents))
    alone, together = (raw / sum(len(squeeze(one)) for one in some) for some in (contents, runs))
    return (
        f"zstd level 3 makes a message of 1 KB {alone:.2f} times smaller, 64 messages "
        f"together {together:.2f} times"
    )


def _bound(metric: str, limit: float, text: str) -> Target:
    return Target(metric, limit, text, side=STEPS_ON_DISK)


SCENARIO = Scenario(
    name="steps-bytes",
    title="A chat of 2,000 messages of 1 KB, and a list of 1,000 of 570 bytes, a checkpoint each",
    run=run,
    engines=(STEPS_ON_DISK, _FILES),
    metrics=tuple(
        Metric(f"{work}_{text}_{name}", f"{work}, {text}: {label}", unit, digits)
        for work in _WORKS
        for text in _TEXTS
        for name, label, unit, digits in (
            ("open", "folder while open / raw", "x", 2),
            ("closed", "folder after close / raw", "x", 2),
            ("cpu_ms", "CPU per checkpoint", "ms", 3),
            ("wall_ms", "wall per checkpoint", "ms", 3),
        )
    ),
    size={"steps": 2000},
    quick={"steps": 200},
    targets=(
        _bound("chat_text_open", 1.0, "a chat of text, while open, over its raw bytes"),
        _bound("chat_random_open", 1.4, "a chat of random base64, while open"),
        _bound("list_text_closed", 1.0, "a list of text, after close"),
        _bound("list_random_closed", 1.5, "a list of random base64, after close"),
    ),
    notes=(
        "Raw is the compact JSON of the last state. The list takes half as many steps. Checkpoints "
        "of `Timeline`, which is handed the whole state; durable. Open is the folder before the "
        "close, right after the last checkpoint.",
    ),
    order=21,
    repeat=1,
    environment="python-3.12",
)
