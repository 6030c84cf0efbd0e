"""What the commit path is held to: small states, one durable commit for each step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypedDict

from bench._apart import elsewhere
from bench._clock import Stopwatch, folder_bytes
from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._registry import engines
from bench._text import Noise, Text, message, short_message
from bench.engines.conversations import Talk, talk
from bench.scenarios import commits, conversations
from bench.scenarios._sides import (
    FILES,
    OUR_SAVER,
    OURS_ON_DISK,
    PEER_TALK_ON_DISK,
    STEPS_ON_DISK,
    TALK_AWAITED,
    TALK_ON_DISK,
)
from bench.scenarios.conversations import Conversation
from bench.scenarios.timelines import Growing

_FILES = "timeline-files"
_TEXTS_BYTES = {"text": Text, "random": Noise}
_WORKS = {"chat": ("steps", 1, message), "list": ("steps", 2, short_message)}
"""What says how many steps it takes, through what that is divided, and what a step adds."""


def run_bytes(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Take the steps of each work with each text."""
    found = Measured()
    for work, (key, parts, make) in _WORKS.items():
        for text, source in _TEXTS_BYTES.items():
            growing = Growing(source(1), make)
            one = _grown_bytes(info, growing, size[key] // parts)
            found.figures |= {f"{work}_{text}_{name}": value for name, value in one.items()}
            if work == "chat":
                found.notes.append(f"{text}: {_squeezed(growing)}")
    return found


def _grown_bytes(info: EngineInfo, work: Growing, count: int) -> dict[str, float]:
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


def _bound_bytes(metric: str, limit: float, text: str) -> Target:
    return Target(metric, limit, text, side=STEPS_ON_DISK)


def run_calls(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Count what a checkpoint and a superstep call."""
    from bench._calls import checkpoint, superstep

    found = Measured()
    for work in (checkpoint, superstep):
        with TemporaryDirectory() as name:
            found.figures |= work(Path(name))
    return found


def _bound_calls(metric: str, limit: float, text: str) -> Target:
    return Target(metric, limit, text, side=OUR_SAVER)


def run_commit(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Commit in turns with the bare transaction."""
    return commits.in_turns(info, {**size, "commits": size["steps"]}, "full")


_BLOCK = 20


def run_conversation(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Blocks of appends of both, in one process and on one disk."""
    mine, other = Stopwatch(), Stopwatch()
    with TemporaryDirectory() as name:
        ours, theirs = (_opened(side, Path(name)) for side in (info.name, PEER_TALK_ON_DISK))
        pairs = [(ours, mine), (theirs, other)]
        items = Conversation(size["steps"]).items
        for at in range(0, len(items), _BLOCK):
            for side, watch in pairs:
                side.append_each([side.message(item) for item in items[at : at + _BLOCK]], watch)
            pairs.reverse()
        synchronous: Any = getattr(theirs, "synchronous", lambda: None)()
        for side, _ in pairs:
            side.close()
    return Measured(
        {
            "times": median(mine.wall) / median(other.wall),
            "times_sum": sum(mine.wall) / sum(other.wall),
            "times_cpu": sum(mine.cpu) / sum(other.cpu),
            "wall_ms": median(mine.wall) * 1e3,
            "peer_ms": median(other.wall) * 1e3,
            "cpu_ms": median(mine.cpu) * 1e3,
            "peer_cpu_ms": median(other.cpu) * 1e3,
        },
        [f"the peer's connections have synchronous = {synchronous} (2 is FULL)"],
    )


def _opened(name: str, folder: Path) -> Talk:
    place = Place(folder / name)
    place.folder.mkdir()
    return talk(engines()[name].open(place))


_VERBS = ("check", "stats")
_FEW, _MANY = "few", "many"


def run_growth(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """The figures of many commits and of a tenth of them."""
    counts = {_FEW: size["steps"] // 10, _MANY: size["steps"]}
    found = Measured()
    for name, count in counts.items():
        found.figures |= {
            f"{name}_{key}": value for key, value in _grown_growth(count, size["reads"]).items()
        }
    figures = found.figures
    figures["old"] = figures["many_old_ms"] / figures["many_newest_ms"]
    figures["old_cpu"] = figures["many_old_cpu_ms"] / figures["many_newest_cpu_ms"]
    for key in ("cpu_us", "open_ms", *(f"{verb}_us" for verb in _VERBS)):
        figures[f"{key}_grown"] = figures[f"many_{key}"] / figures[f"few_{key}"]
    return found


def _grown_growth(count: int, reads: int) -> dict[str, float]:
    from bench._care import look, make, read

    with TemporaryDirectory() as folder:
        made = elsewhere(make, folder, count, reads)
        newest, old = made.pop("newest"), made.pop("old")
        pairs = [(elsewhere(read, folder, *newest), elsewhere(read, folder, *one)) for one in old]
        looked = {verb: elsewhere(look, folder, verb) for verb in _VERBS}
    figures: dict[str, float] = made
    for key in ("open_ms", "open_cpu_ms"):
        figures[key] = median(one[key] for pair in pairs for one in pair)
    for at, name in enumerate(("newest", "old")):
        for key in ("ms", "cpu_ms"):
            figures[f"{name}_{key}"] = median(pair[at][f"read_{key}"] for pair in pairs)
    for verb, one in looked.items():
        figures[f"{verb}_us"] = one["cpu_s"] / one["objects"] * 1e6
        figures[f"{verb}_commit_us"] = one["cpu_s"] / count * 1e6
        figures[f"{verb}_mb"] = one["peak_mb"]
    return figures


_EACH = (
    Metric("cpu_us", "CPU per commit", "us", 0),
    Metric("writer_mb", "memory of the writer", "MB", 1),
    Metric("folder_mb", "folder after close", "MB", 1),
    Metric("open_ms", "opening, wall", "ms", 2),
    Metric("open_cpu_ms", "opening, CPU", "ms", 2),
    Metric("newest_ms", "newest, read cold, wall", "ms", 2),
    Metric("newest_cpu_ms", "newest, CPU", "ms", 2),
    Metric("old_ms", "old, read cold, wall", "ms", 2),
    Metric("old_cpu_ms", "old, CPU", "ms", 2),
    Metric("check_us", "check, CPU per object", "us", 1),
    Metric("check_commit_us", "check, CPU per commit", "us", 1),
    Metric("check_mb", "check, memory", "MB", 1),
    Metric("stats_us", "stats, CPU per object", "us", 1),
    Metric("stats_commit_us", "stats, CPU per commit", "us", 1),
    Metric("stats_mb", "stats, memory", "MB", 1),
)


def _bound_growth(metric: str, limit: float, text: str) -> Target:
    return Target(metric, limit, text, side=STEPS_ON_DISK)


def run_memory(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """The same work with a timeline and without, each in a fresh process."""
    from bench._large import take

    told = size["megabytes"], size["steps"]
    alone = elsewhere(take, None, *told)
    with TemporaryDirectory() as folder:
        ours = elsewhere(take, folder, *told)
    encoded = alone["encoded_mb"]
    return Measured(
        {
            "times": (ours["peak_mb"] - alone["peak_mb"]) / encoded,
            "held_times": (ours["held_mb"] - alone["held_mb"]) / encoded,
            "with_mb": ours["peak_mb"],
            "alone_mb": alone["peak_mb"],
            "encoded_mb": encoded,
        }
    )


_TEXTS_SHARING = {"random": Noise, "text": Text}


def run_sharing(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """The bytes of all with each text, and of one thread alone."""
    figures = {}
    for name, source in _TEXTS_SHARING.items():
        document = source(4).prose(size["bytes"])
        for key, threads in ((f"{name}_mb", size["threads"]), (f"{name}_one_mb", 0)):
            with TemporaryDirectory() as folder:
                _hold(Path(folder), document, threads)
                figures[key] = folder_bytes(Path(folder)) / 1e6
                _check(Path(folder), document, threads)
    return Measured(figures)


def _hold(folder: Path, document: str, threads: int) -> None:
    """One thread with the document; and if there are to be more, all others that hold it."""
    from bench.ropewalk_sides import DocumentState
    from ropewalk import Timeline, create_runtime

    with _saver(folder) as saver:
        graph = _graph(saver)
        for number in range(threads or 1):
            graph.invoke({"document": document, "seen": 0}, _config(f"thread-{number}"))
        if not threads:
            return
        saver.copy_thread("thread-0", "copy")
        timeline = Timeline("agent", saver.store)
        timeline.checkpoint({"document": document})
        timeline.fork("forked")
        for _ in range(2):
            DocumentState(
                runtime=create_runtime(backend=saver.store), value=document
            ).to_checkpoint_dict()


def _check(folder: Path, document: str, threads: int) -> None:
    from ropewalk import Timeline

    with _saver(folder) as saver:
        graph = _graph(saver)
        for name in ("thread-0", "copy", f"thread-{threads - 1}") if threads else ("thread-0",):
            values = graph.get_state(_config(name)).values
            assert values == {"document": document, "seen": 1}, f"{name} did not read back"
        if threads:
            assert Timeline("forked", saver.store).get_state() == {"document": document}


def _saver(folder: Path) -> Any:
    from ropewalk.adapters.langgraph import RopewalkSaver

    return RopewalkSaver(str(folder / "agent.ropewalk"))


def _graph(saver: Any) -> Any:
    from langgraph.graph import END, START, StateGraph

    schema: Any = TypedDict("schema", {"document": str, "seen": int})
    builder: Any = StateGraph(schema)
    builder.add_node("look", lambda state: {"seen": state["seen"] + 1})
    builder.add_edge(START, "look")
    builder.add_edge("look", END)
    return builder.compile(checkpointer=saver)


def _config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


SCENARIOS = (
    Scenario(
        name="steps-bytes",
        title="A chat of 2,000 messages of 1 KB, and a list of 1,000 of 570 bytes, a checkpoint "
        "each",
        run=run_bytes,
        engines=(STEPS_ON_DISK, _FILES),
        metrics=tuple(
            Metric(f"{work}_{text}_{name}", f"{work}, {text}: {label}", unit, digits)
            for work in _WORKS
            for text in _TEXTS_BYTES
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
            _bound_bytes("chat_text_open", 1.0, "a chat of text, while open, over its raw bytes"),
            _bound_bytes("chat_random_open", 1.4, "a chat of random base64, while open"),
            _bound_bytes("list_text_closed", 1.0, "a list of text, after close"),
            _bound_bytes("list_random_closed", 1.5, "a list of random base64, after close"),
        ),
        notes=(
            "Raw is the compact JSON of the last state. The list takes half as many steps. "
            "Checkpoints of `Timeline`, which is handed the whole state; durable. Open is the "
            "folder before the close, right after the last checkpoint.",
        ),
        order=21,
        repeat=1,
        environment="python-3.12",
    ),
    Scenario(
        name="steps-calls",
        title="Calls of our own functions in a checkpoint of a small dict, and in a superstep",
        run=run_calls,
        engines=(OUR_SAVER,),
        metrics=(
            Metric("checkpoint_calls", "checkpoint: calls", digits=0),
            Metric("checkpoint_modules", "modules", digits=0),
            Metric("checkpoint_behind", "calls of threads behind it", digits=0),
            Metric("superstep_calls", "superstep: calls", digits=0),
            Metric("superstep_modules", "modules", digits=0),
            Metric("superstep_behind", "calls of threads behind it", digits=0),
        ),
        size={},
        quick={},
        targets=(
            _bound_calls("checkpoint_calls", 80, "calls of a checkpoint"),
            _bound_calls("checkpoint_modules", 15, "modules that a checkpoint passes"),
            _bound_calls("superstep_calls", 150, "calls of a superstep"),
            _bound_calls("superstep_modules", 18, "modules that a superstep passes"),
        ),
        notes=(
            "Events `call` of `sys.setprofile` in files of Ropewalk, third run. Supersteps are "
            "those of a graph of one node with a state of 600 bytes, in its third invoke, with "
            "all that LangGraph asks of the saver for one: `get_next_version`, `put_writes` and "
            "`put`. Threads that Ropewalk has behind them are counted apart.",
        ),
        order=24,
        repeat=3,
        environment="python-3.12",
    ),
    Scenario(
        name="steps-commit",
        title="One small durable commit: a number changes in a state of 600 bytes",
        run=run_commit,
        engines=(OURS_ON_DISK, FILES),
        metrics=(
            Metric("quiet_over_bare", "quiet tenth, wall / bare insert", "x"),
            Metric("cpu_over_bare", "mean CPU / bare insert", "x"),
            Metric("late", "99th percentile / median, wall", "x"),
            Metric("late_bare", "the bare insert's", "x"),
            Metric("median_ms", "median wall per commit", "ms", 3),
            Metric("wall_ms", "mean wall per commit", "ms", 3),
            Metric("cpu_ms", "mean CPU per commit", "ms", 3),
            Metric("commits", "commits", digits=0),
        ),
        size={"steps": 4000, "seconds": 120},
        quick={"steps": 300, "seconds": 20},
        targets=(
            Target("quiet_over_bare", 1.8, "quiet tenth over the bare insert", side=OURS_ON_DISK),
            Target("late", 5.0, "99th percentile over the median", side=OURS_ON_DISK),
        ),
        notes=(
            "Blocks of 25 commits take turns with blocks of a transaction that inserts the changed "
            "number and its path, in one process and on one disk. The quiet tenth is the time "
            "below which a tenth of the commits are: what the machine does besides is not in it.",
        ),
        order=22,
        repeat=3,
        environment="python-3.12",
    ),
    Scenario(
        name="steps-conversation",
        title="Messages of 1 KB, appended to a conversation one by one",
        run=run_conversation,
        engines=(TALK_ON_DISK, TALK_AWAITED),
        metrics=(
            Metric("times", "median wall / SQLiteSession's", "x"),
            Metric("times_sum", "sum of walls / SQLiteSession's", "x"),
            Metric("times_cpu", "CPU / SQLiteSession's", "x"),
            Metric("wall_ms", "median wall per append", "ms", 3),
            Metric("peer_ms", "SQLiteSession's", "ms", 3),
            Metric("cpu_ms", "median CPU per append", "ms", 3),
            Metric("peer_cpu_ms", "SQLiteSession's", "ms", 3),
        ),
        size={"steps": 2000},
        quick={"steps": 100},
        targets=(
            Target("times", 1.1, "an append: median wall over the peer's", side=TALK_ON_DISK),
            Target("times", 1.1, "the same, awaited", side=TALK_AWAITED),
        ),
        notes=(
            conversations.MESSAGES_NOTE,
            "Blocks of 20 appends alternate with the peer's in one process and on one disk. Both "
            "use WAL and synchronous = FULL: Ropewalk sets it, SQLiteSession leaves it as SQLite "
            "was built, which the unit asks. SQLiteSession offers coroutines only, which run on "
            "threads of the event loop; Ropewalk is measured as called, and awaited too.",
        ),
        order=23,
        repeat=3,
    ),
    Scenario(
        name="steps-growth",
        title="100,000 checkpoints of a state of 600 bytes, beside a tenth of them",
        run=run_growth,
        engines=(STEPS_ON_DISK,),
        metrics=(
            Metric("old", "random old checkpoint of many / newest, cold, wall", "x"),
            Metric("old_cpu", "the same, CPU", "x"),
            Metric("cpu_us_grown", "CPU per commit, many / few", "x"),
            Metric("open_ms_grown", "opening, many / few", "x"),
            *(Metric(f"{verb}_us_grown", f"{verb} per object, many / few", "x") for verb in _VERBS),
            *(
                Metric(f"{name}_{one.key}", f"{name}: {one.label}", one.unit, one.digits)
                for name in (_FEW, _MANY)
                for one in _EACH
            ),
        ),
        size={"steps": 100_000, "reads": 9},
        quick={"steps": 2_000, "reads": 3},
        targets=(
            _bound_growth("old", 1.5, "a random old checkpoint, cold, over the newest"),
            _bound_growth("cpu_us_grown", 1.1, "CPU per commit, with ten times the commits"),
            _bound_growth("open_ms_grown", 1.2, "opening, with ten times the commits"),
            *(
                _bound_growth(f"{name}_{verb}_us", 10, f"{verb}, {name}")
                for name in (_FEW, _MANY)
                for verb in _VERBS
            ),
            *(
                _bound_growth(f"{verb}_us_grown", 1.1, f"{verb}, with ten times the commits")
                for verb in _VERBS
            ),
        ),
        notes=(
            "Made by one process, relaxed; then each opening with one read is a process of its "
            "own, nine of the newest and nine of old ones of the first half, in turns, and "
            "`check` and `stats` are one each. The files are in the system's cache. Memory is "
            "above that before.",
        ),
        order=25,
        repeat=1,
        timeout=1200,
        environment="python-3.12",
    ),
    Scenario(
        name="steps-memory",
        title="Commits of 1 MB into a state of 200 MB",
        run=run_memory,
        engines=(STEPS_ON_DISK,),
        metrics=(
            Metric("times", "peak memory above that without / encoded state", "x"),
            Metric("held_times", "memory at the end, the same", "x"),
            Metric("with_mb", "peak memory of the process", "MB", 0),
            Metric("alone_mb", "without a timeline", "MB", 0),
            Metric("encoded_mb", "encoded state", "MB", 0),
        ),
        size={"megabytes": 200, "steps": 50},
        quick={"megabytes": 20, "steps": 5},
        targets=(
            Target("times", 1.5, "peak memory above that of who only holds it", side=STEPS_ON_DISK),
        ),
        notes=(
            "A list of documents of 1,000 messages of 1 KB grows by one at each commit until it "
            "has 200 MB; then 50 commits replace one each. The same is done without a timeline, "
            "in a process of its own, and its peak is what is subtracted. Encoded is compact JSON.",
        ),
        order=26,
        repeat=1,
        timeout=1200,
        environment="python-3.12",
    ),
    Scenario(
        name="steps-sharing",
        title="A document of 1 MB in 100 threads of a graph, a copy, a fork and two states",
        run=run_sharing,
        engines=(OUR_SAVER,),
        metrics=(
            Metric("random_mb", "random base64: folder after close", "MB", 2),
            Metric("random_one_mb", "of one thread alone", "MB", 2),
            Metric("text_mb", "text: folder after close", "MB", 2),
            Metric("text_one_mb", "of one thread alone", "MB", 2),
        ),
        size={"bytes": 1_000_000, "threads": 100},
        quick={"bytes": 1_000_000, "threads": 5},
        targets=(Target("random_mb", 1.2, "all that hold the same random text", side=OUR_SAVER),),
        notes=(
            "In one store: the threads, of two supersteps each; a copy of a thread; a timeline "
            "whose state holds the document, and a fork of it; and two `AgentState`s with it as "
            "a field.",
        ),
        order=27,
        repeat=1,
        environment="python-3.12",
    ),
)
