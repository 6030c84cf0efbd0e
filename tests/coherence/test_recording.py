"""Real runs, recorded: what the core tells its logs, and what `replay` makes of it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ropewalk.coherence import CoherenceCore, record_to, replay, validate_log
from ropewalk.coherence.protocol import Version
from ropewalk.coherence.read_path import ReadPath
from ropewalk.coherence.strategies import Lazy
from ropewalk.coherence.write_path import WritePath, WriteRequest
from ropewalk.errors import NotFound, VersionConflict
from ropewalk.store import MemoryStore
from tests.coherence.outages import AwayStore
from tests.patience import wait_until


def events(folder: Path, stream: str) -> list[dict[str, Any]]:
    (path,) = folder.glob(f"*.{stream}.jsonl")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [one for one in found if "record" not in one]


def test_the_first_record_says_what_the_strategy_promises(tmp_path: Path) -> None:
    logs = record_to(tmp_path)
    with CoherenceCore(name="team", strategy="lease", ttl_seconds=3, **logs) as core:
        core.write("a", "plan", {"step": 1})

    begin = json.loads(logs["state_log"].read_text().splitlines()[0])
    told = begin["space"], begin["strategy"], begin["bound_seconds"], begin["bound_reads"]
    assert told == ("team", "lease", 3.0, 0)
    assert begin["instance_id"] == core.instance_id


def test_every_read_and_write_is_in_the_content_audit_log(tmp_path: Path) -> None:
    with CoherenceCore(**record_to(tmp_path)) as core:
        core.register_artifact("plan", {"step": 1}, agent_name="a")
        core.read("b", "plan")
        core.read("b", "plan")
        core.write("b", "plan", {"step": 2})
        core.edit("a", "plan", lambda plan: {"step": plan["step"] + 1})
        core.publish("a", {"plan": {"step": 4}, "notes": {}})
        core.snapshot("b", ["plan", "notes"])
        core.delete("b", "plan")
        for missing in ("plan", "other"):
            with suppress(NotFound):
                core.read("a", missing)

    told = [
        (one["agent_name"], one["artifact_id"], one["version"], one["source"], one["outcome"])
        for one in events(tmp_path, "audit")
    ]
    assert told == [
        ("a", "plan", 1, "write", "content"),
        ("b", "plan", 1, "fetch", "content"),
        ("b", "plan", 1, "cache_hit", "content"),
        ("b", "plan", 2, "write", "content"),
        ("a", "plan", 3, "write", "content"),
        ("a", "plan", 4, "write", "content"),
        ("a", "notes", 1, "write", "content"),
        ("b", "plan", 4, "fetch", "content"),
        ("b", "notes", 1, "fetch", "content"),
        ("b", "plan", 5, "write", "empty"),
        ("a", "plan", 5, "fetch", "empty"),
        ("a", "other", 0, "fetch", "empty"),
    ]


def test_a_write_says_what_it_was_made_from_and_a_hash_which_content_it_is(tmp_path: Path) -> None:
    with CoherenceCore(**record_to(tmp_path)) as core:
        first = core.write("a", "plan", {"x": 1, "y": 1})
        core.read("b", "plan")
        core.write("a", "plan", {"x": 2, "y": 1})
        merged = core.write("b", "plan", {"x": 1, "y": 2})

    told = events(tmp_path, "audit")
    assert [(one["read_version"], one["merged"]) for one in told] == [
        (0, False), (None, False), (1, False), (2, True),
    ]  # fmt: skip
    assert told[0]["content_hash"] == told[1]["content_hash"] == first.content_hash
    assert told[3]["content_hash"] == merged.content_hash
    assert all(one["began"] <= one["time"] for one in told)


def test_transitions_are_in_the_state_log_with_what_was_committed(tmp_path: Path) -> None:
    with CoherenceCore(**record_to(tmp_path)) as core:
        made = core.write("a", "plan", {"step": 1})
        core.read("b", "plan")
        core.write("a", "plan", {"step": 2})

    told = [
        (one["agent_name"], one["from_state"], one["to_state"], one["trigger"], one["version"])
        for one in events(tmp_path, "state")
    ]
    assert told == [
        ("a", "INVALID", "SHARED", "commit_cas", 1),
        ("b", "INVALID", "SHARED", "fetch", 1),
        ("a", "SHARED", "SHARED", "commit_cas", 2),
        ("b", "SHARED", "INVALID", "invalidate", 1),
    ]
    assert events(tmp_path, "state")[0]["content_hash"] == made.content_hash


def test_what_was_written_before_a_recording_began_proves_nothing_wrong(tmp_path: Path) -> None:
    store, folder = str(tmp_path / "store"), tmp_path / "run"
    with CoherenceCore(store) as late, CoherenceCore(store, **record_to(folder)) as core:
        core.write("a", "plan", {"step": 1})
        late.write("b", "plan", {"step": 2})
        core.read("a", "plan")
        late.record_to(folder)
        late.read("b", "plan")

    done = replay(folder)
    assert [(one.invariant, one.certain) for one in done.findings] == [("unwritten-version", False)]
    assert done.ok


def test_metrics_say_what_was_a_hit() -> None:
    seen: list[Any] = []
    with CoherenceCore(on_metric=seen.append) as core:
        core.write("a", "plan", {})
        core.read("b", "plan")
        core.read("b", "plan")
        core.delete("b", "plan")

    told = [(one.operation, one.agent_name, one.key, one.cache_hit) for one in seen]
    assert told == [
        ("put", "a", "plan", False),
        ("get", "b", "plan", False),
        ("get", "b", "plan", True),
        ("delete", "b", "plan", False),
    ]


def test_a_callback_that_raises_changes_nothing_for_the_agents() -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("no")

    with CoherenceCore(state_log=refuse, content_audit_log=refuse, on_metric=refuse) as core:
        core.write("a", "plan", {"step": 1})
        core.read("b", "plan")
        core.write("a", "plan", {"step": 2})

        assert core.read("b", "plan").value == {"step": 2}


STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "lazy"},
    {"strategy": "eager"},
    {"strategy": "lease", "ttl_seconds": 0.05},
    {"strategy": "access_count", "max_accesses": 3},
    {"strategy": "broadcast", "tick_seconds": 0.05},
]


def work(core: CoherenceCore, agent: str, seed: int, steps: int) -> None:
    """Whatever an agent may do, in an order of its own."""
    chance = random.Random(seed)
    for _ in range(steps):
        artifact = chance.choice(["plan", "notes"])
        what = chance.random()
        if what < 0.6:
            core.read(agent, artifact)
        elif what < 0.8:
            core.edit(agent, artifact, lambda value: {**value, agent: 1})
        elif what < 0.9:
            core.snapshot(agent, ["plan", "notes"])
        else:
            with suppress(VersionConflict):
                core.write(agent, artifact, {**core.read(agent, artifact).value, "by": agent})


@pytest.mark.parametrize("where", ["memory", "sqlite"])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one["strategy"])
def test_threads_that_share_artifacts_break_nothing(
    tmp_path: Path, where: str, strategy: dict[str, Any]
) -> None:
    store = None if where == "memory" else str(tmp_path / "store")
    folder = tmp_path / "run"
    with CoherenceCore(store, **record_to(folder), **strategy) as core:
        core.publish("a", {"plan": {}, "notes": {}})
        threads = [
            threading.Thread(target=work, args=(core, agent, number, 60))
            for number, agent in enumerate("abcd")
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    done = replay(folder)
    assert done.findings == []
    assert done.complete
    assert (done.agents, done.artifacts, done.unbounded) == (4, 2, 0)
    for path in folder.iterdir():
        stream = "state_log" if ".state." in path.name else "content_audit_log"
        assert validate_log(path, stream) == ([], [])


def test_increments_that_overwrite_each_other_are_lost_updates(tmp_path: Path) -> None:
    with CoherenceCore(on_conflict="overwrite", **record_to(tmp_path)) as core:
        core.write("a", "counter", {"n": 0})
        read = {agent: core.read(agent, "counter").value["n"] for agent in "abcd"}
        for agent, n in read.items():
            core.write(agent, "counter", {"n": n + 1})
        left = core.read("a", "counter").value["n"]

    done = replay(tmp_path)
    assert left == 1
    assert [(one.invariant, one.agent) for one in done.findings] == [
        ("lost-update", "b"), ("lost-update", "c"), ("lost-update", "d"),
    ]  # fmt: skip


def test_the_same_increments_are_all_there_with_edit(tmp_path: Path) -> None:
    with CoherenceCore(**record_to(tmp_path)) as core:
        core.write("a", "counter", {"n": 0})
        for agent in "abcd":
            core.read(agent, "counter")
        for agent in "abcd":
            core.edit(agent, "counter", lambda value: {"n": value["n"] + 1})
        left = core.read("a", "counter").value["n"]

    assert left == 4
    assert replay(tmp_path).findings == []


PROCESS = """
import sys
from ropewalk.coherence import CoherenceCore, record_to, replay, validate_log
from tests.coherence.test_recording import work

store, folder, agent, seed = sys.argv[1:]
with CoherenceCore(store, strategy="lease", ttl_seconds=0.2, **record_to(folder)) as core:
    work(core, agent, int(seed), 40)
"""


def test_processes_that_share_artifacts_break_nothing(tmp_path: Path) -> None:
    store, folder = str(tmp_path / "store"), tmp_path / "run"
    with CoherenceCore(store, **record_to(folder)) as core:
        core.publish("first", {"plan": {}, "notes": {}})
    started = [
        subprocess.Popen([sys.executable, "-c", PROCESS, store, str(folder), agent, str(number)])
        for number, agent in enumerate("abc")
    ]
    codes = [one.wait(120) for one in started]

    done = replay(folder)
    assert codes == [0, 0, 0]
    assert done.findings == []
    assert (done.complete, done.instances, done.agents) == (True, 4, 4)


KILLED = """
import os, signal, sys
from ropewalk.coherence import CoherenceCore, record_to
from tests.coherence.test_recording import work
from tests.patience import wait_until

core = CoherenceCore(sys.argv[1], **record_to(sys.argv[2]))
work(core, "killed", 7, 40)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_was_killed_leaves_a_log_that_says_so_and_proves_nothing_wrong(
    tmp_path: Path,
) -> None:
    store, folder = str(tmp_path / "store"), tmp_path / "run"
    with CoherenceCore(store, **record_to(folder)) as core:
        core.publish("first", {"plan": {}, "notes": {}})
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, store, str(folder)], check=False, timeout=120
        )
        work(core, "after", 8, 40)

    done = replay(folder)
    assert killed.returncode == -9
    assert not done.complete
    assert done.ok


def test_a_grant_is_in_the_state_log_with_its_token_from_begin_to_end(tmp_path: Path) -> None:
    with CoherenceCore(**record_to(tmp_path)) as core:
        core.write("a", "plan", {"step": 1})
        with core.hold("a", "plan"):
            core.write("a", "plan", {"step": 2})

    told = [
        (one["trigger"], one["to_state"], one["token"]) for one in events(tmp_path, "state")[1:]
    ]
    assert told == [
        ("grant", "EXCLUSIVE", 1),
        ("commit", "MODIFIED", 1),
        ("release", "SHARED", None),
    ]
    assert [one["token"] for one in events(tmp_path, "audit")] == [None, 1]


def hold_by_turns(core: CoherenceCore, agent: str, times: int) -> None:
    for _ in range(times):
        with core.hold(agent, "plan"):
            value = core.read(agent, "plan").value
            core.write(agent, "plan", {"n": value["n"] + 1})
        core.edit(agent, "plan", lambda value: {"n": value["n"] + 1})


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_agents_that_hold_an_artifact_by_turns_break_nothing(tmp_path: Path, where: str) -> None:
    store = None if where == "memory" else str(tmp_path / "store")
    with CoherenceCore(store, **record_to(tmp_path / "run")) as core:
        core.write("a", "plan", {"n": 0})
        threads = [threading.Thread(target=hold_by_turns, args=(core, agent, 5)) for agent in "abc"]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        reached = core.read("a", "plan").value["n"]

    done = replay(tmp_path / "run")
    assert reached == 30
    assert done.findings == []
    assert done.complete


HOLDER = """
import os, signal, sys
from ropewalk.coherence import CoherenceCore, record_to
from ropewalk.coherence.leases import CrashRecoveryConfig

config = CrashRecoveryConfig(heartbeat_timeout_ticks=1)
core = CoherenceCore(sys.argv[1], crash_recovery=config, tick_seconds=1.0, **record_to(sys.argv[2]))
core.hold("killed", "plan")
core.write("killed", "plan", {"by": "killed"})
core.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_grant_that_was_taken_from_a_killed_holder_is_in_the_log_with_its_trigger(
    tmp_path: Path,
) -> None:
    store, folder = str(tmp_path / "store"), tmp_path / "run"
    with CoherenceCore(store, tick_seconds=1.0, **record_to(folder)) as core:
        core.write("a", "plan", {"by": "a"})
        subprocess.run([sys.executable, "-c", HOLDER, store, str(folder)], check=False, timeout=60)
        with core.hold("a", "plan", timeout=60):
            core.write("a", "plan", {"by": "a"})

    told = [
        json.loads(line)
        for path in folder.glob("*.state.jsonl")
        for line in path.read_text().splitlines()
    ]
    reclaims = [one for one in told if str(one.get("trigger")).startswith("reclaim")]
    done = replay(folder)
    assert [(one["agent_name"], one["trigger"]) for one in reclaims] == [
        ("killed", "reclaim_heartbeat")
    ]
    assert done.findings == []
    assert len(done.gaps) == 2


def test_a_core_that_serves_what_it_should_have_confirmed_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = str(tmp_path / "store"), tmp_path / "run"
    with (
        CoherenceCore(store, bus=False, **record_to(folder)) as one,
        CoherenceCore(store, bus=False, **record_to(folder)) as other,
    ):
        one.write("a", "plan", {"step": 1})
        other.read("b", "plan")
        one.write("a", "plan", {"step": 2})
        monkeypatch.setattr(Lazy, "always_asks", False)
        monkeypatch.setattr(ReadPath, "_may_serve", lambda *_: True)
        stale = other.read("b", "plan")

    done = replay(folder)
    assert stale.version == 1
    assert [(one.invariant, one.agent) for one in done.findings] == [("stale-read", "b")]


def test_a_core_that_writes_on_whatever_there_is_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = str(tmp_path / "store"), tmp_path / "run"

    def carelessly(
        self: WritePath, artifact: str, request: WriteRequest, newest: Version | None
    ) -> WriteRequest:
        return replace(request, expected=newest)

    monkeypatch.setattr(WritePath, "rebase", carelessly)
    with (
        CoherenceCore(store, bus=False, **record_to(folder)) as one,
        CoherenceCore(store, bus=False, **record_to(folder)) as other,
    ):
        one.write("a", "plan", {"n": 1})
        other.read("b", "plan")
        one.write("a", "plan", {"n": 2})
        other.write("b", "plan", {"n": 2})

    done = replay(folder)
    assert [(one.invariant, one.agent) for one in done.findings] == [("lost-update", "b")]


@pytest.mark.filterwarnings("ignore::ropewalk.coherence.CoherenceDegradedWarning")
@pytest.mark.parametrize("lost", ["request", "reply"])
def test_work_while_the_engine_is_away_is_marked_and_proves_nothing_wrong(
    tmp_path: Path, lost: str
) -> None:
    memory = MemoryStore()
    store = AwayStore(memory.another())
    events_seen: list[Any] = []
    logs = record_to(tmp_path)
    with (
        CoherenceCore(memory, bus=False, **record_to(tmp_path)) as other,
        CoherenceCore(
            store, bus=False, on_error="degrade", on_metric=events_seen.append, **logs
        ) as core,
    ):
        core.write("a", "plan", {"x": 1, "y": 1})
        store.silent, store.away = lost == "reply", lost == "request"
        core.write("a", "plan", {"x": 2, "y": 1})
        core.read("a", "plan")
        base = other.read("b", "plan").value
        other.write("b", "plan", {**base, "y": 2})
        store.silent = store.away = False
        wait_until(lambda: not core.is_degraded)
        reached = core.read("a", "plan").value

    done = replay(tmp_path)
    assert reached == {"x": 2, "y": 2}
    assert done.findings == []
    assert done.degraded > 0
    assert "degraded" in {one.operation for one in events_seen}


def test_a_metric_says_how_long_its_operation_took() -> None:
    seen: list[Any] = []
    with CoherenceCore(on_metric=seen.append) as core:
        core.edit("planner", "plan", lambda value: value, default=1)
        core.read("reviewer", "plan")
        core.delete("planner", "plan")

    assert [one.operation for one in seen] == ["put", "get", "delete"]
    assert all(isinstance(one.seconds, float) and one.seconds >= 0 for one in seen)


def test_a_delete_that_others_were_faster_than_loses_nothing(tmp_path: Path) -> None:
    with CoherenceCore(**record_to(tmp_path)) as core:
        core.write("a", "plan", 1)
        commit, faster = core._authority.commit, [True]

        def late(changes: Any, *given: Any, **more: Any) -> Any:
            if changes[0].content is None and faster.pop():
                core.edit("a", "plan", lambda value: value + 1)
            return commit(changes, *given, **more)

        core._authority.commit = late  # type: ignore[method-assign]
        faster.insert(0, False)
        core.delete("b", "plan")

    assert replay(tmp_path).findings == []
