"""What an adapter for shared artifacts does in every framework. A subclass names its own."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pytest

import ropewalk
from ropewalk.coherence import (
    CoherenceCore,
    CoherenceDegradedWarning,
    CrashRecoveryConfig,
    State,
)
from ropewalk.errors import (
    ArtifactHeld,
    Conflict,
    GrantLost,
    InvalidInput,
    NotFound,
    Unavailable,
    VersionConflict,
)
from ropewalk.store import MemoryStore
from ropewalk.store.wrappers import WrapperStore
from tests.conftest import SOAK
from tests.frameworks.turn import ROOT

R = TypeVar("R")

TIMES = 100 if SOAK else 10
STRATEGIES = ["lazy", "eager", "lease", "access_count", "broadcast"]


class AwayStore(WrapperStore):
    """A store whose engine can be away."""

    away = False

    def _call(self, method: str, call: Callable[[], R]) -> R:
        if self.away:
            raise Unavailable("the engine is away")
        return call()


class SharingSuite:
    """`adapter_class` is the framework's; `given` and `committed` call its own methods."""

    adapter_class: type[Any]
    processes = 4

    def given(self, adapter: Any, agent: str, names: list[str], **options: Any) -> dict[str, Any]:
        """The contents that an agent gets before a step."""
        raise NotImplementedError

    def committed(
        self, adapter: Any, agent: str, writes: Mapping[str, Any], **options: Any
    ) -> dict[str, int]:
        """The versions that come of what an agent commits after a step."""
        raise NotImplementedError

    async def agiven(self, adapter: Any, agent: str, names: list[str]) -> dict[str, Any]:
        raise NotImplementedError

    async def acommitted(self, adapter: Any, agent: str, writes: Any) -> dict[str, int]:
        raise NotImplementedError

    @pytest.fixture
    def make(self) -> Iterator[Callable[..., Any]]:
        """Makes adapters, and closes them after the test."""
        made: list[Any] = []

        def make(*arguments: Any, **options: Any) -> Any:
            made.append(self.adapter_class(*arguments, **options))
            return made[-1]

        yield make
        for one in made:
            one.close()

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_an_agent_gets_what_another_committed(self, make: Any, strategy: str) -> None:
        adapter = make(strategy=strategy)
        for name in ("planner", "reviewer"):
            adapter.register_agent(name, now_tick=0)
        adapter.register_artifact(name="plan", content={"step": 1}, size_tokens=4)
        before = self.given(adapter, "reviewer", ["plan"], now_tick=1)
        self.given(adapter, "planner", ["plan"], now_tick=1)
        versions = self.committed(adapter, "planner", {"plan": {"step": 2}}, now_tick=2)

        assert before == {"plan": {"step": 1}}
        assert versions == {"plan": 2}
        assert self.given(adapter, "reviewer", ["plan"], now_tick=3) == {"plan": {"step": 2}}

    def test_what_an_agent_got_is_its_own(self, make: Any) -> None:
        adapter = make()
        adapter.register_artifact(name="plan", content={"steps": [1]})
        self.given(adapter, "planner", ["plan"])["plan"]["steps"].append(2)

        assert self.given(adapter, "planner", ["plan"]) == {"plan": {"steps": [1]}}

    def test_an_artifact_that_is_not_there_is_an_error(self, make: Any) -> None:
        with pytest.raises(NotFound, match="plan"):
            self.given(make(), "planner", ["plan"])

    def test_an_artifact_is_registered_once(self, make: Any) -> None:
        adapter = make()
        adapter.register_artifact(name="plan", content="one")

        with pytest.raises(Conflict):
            adapter.register_artifact(name="plan", content="two")

    def test_what_another_changed_meanwhile_is_not_overwritten(self, make: Any) -> None:
        adapter = make()
        adapter.register_artifact(name="plan", content="one")
        for agent in ("planner", "reviewer"):
            self.given(adapter, agent, ["plan"])
        self.committed(adapter, "planner", {"plan": "planner's"})

        with pytest.raises(VersionConflict) as refused:
            self.committed(adapter, "reviewer", {"plan": "reviewer's"})
        assert refused.value.actual == 2
        assert self.given(adapter, "reviewer", ["plan"]) == {"plan": "planner's"}
        assert self.committed(adapter, "reviewer", {"plan": "reviewer's"}) == {"plan": 3}

    def test_changes_of_different_parts_are_merged(self, make: Any) -> None:
        adapter = make()
        adapter.register_artifact(name="plan", content={"draft": 0, "review": 0})
        for agent in ("planner", "reviewer"):
            self.given(adapter, agent, ["plan"])
        self.committed(adapter, "planner", {"plan": {"draft": 1, "review": 0}})
        self.committed(adapter, "reviewer", {"plan": {"draft": 0, "review": 1}})

        assert self.given(adapter, "planner", ["plan"]) == {"plan": {"draft": 1, "review": 1}}

    def test_a_merger_joins_changes_of_the_same_part(self, make: Any) -> None:
        adapter = make(mergers={"findings": "append"})
        adapter.register_artifact(name="report", content={"findings": []})
        for agent in ("style", "security"):
            self.given(adapter, agent, ["report"])
        for agent in ("style", "security"):
            self.committed(adapter, agent, {"report": {"findings": [agent]}})

        joined = self.given(adapter, "style", ["report"])["report"]["findings"]
        assert sorted(joined) == ["security", "style"]

    def test_the_last_writer_wins_where_that_is_chosen(self, make: Any) -> None:
        adapter = make(on_conflict="overwrite")
        adapter.register_artifact(name="plan", content="one")
        for agent in ("planner", "reviewer"):
            self.given(adapter, agent, ["plan"])
        self.committed(adapter, "planner", {"plan": "planner's"})

        assert self.committed(adapter, "reviewer", {"plan": "reviewer's"}) == {"plan": 3}

    def test_a_commit_is_all_or_none(self, make: Any) -> None:
        adapter = make()
        for name in ("plan", "notes"):
            adapter.register_artifact(name=name, content="one")
        for agent in ("planner", "reviewer"):
            self.given(adapter, agent, ["plan", "notes"])
        self.committed(adapter, "planner", {"plan": "planner's"})

        with pytest.raises(VersionConflict):
            self.committed(adapter, "reviewer", {"notes": "reviewer's", "plan": "reviewer's"})
        assert self.given(adapter, "planner", ["notes"]) == {"notes": "one"}

    def test_the_asynchronous_methods_do_the_same(self, make: Any) -> None:
        async def work() -> Any:
            async with self.adapter_class() as adapter:
                await adapter.aregister_agent("planner")
                await adapter.aregister_artifact(name="plan", content="one")
                before = await self.agiven(adapter, "planner", ["plan"])
                versions = await self.acommitted(adapter, "planner", {"plan": "two"})
                await adapter.aheartbeat("planner")
                await adapter.arecover("planner")
                return before, versions, await self.agiven(adapter, "planner", ["plan"])

        assert asyncio.run(work()) == ({"plan": "one"}, {"plan": 2}, {"plan": "two"})

    def test_every_method_has_an_asynchronous_twin(self) -> None:
        methods = {
            name
            for name, method in inspect.getmembers(self.adapter_class, inspect.isfunction)
            if not name.startswith("_") and not inspect.iscoroutinefunction(method)
        } - {"agent", "model_context", "node", "task"}

        assert {name for name in methods if not hasattr(self.adapter_class, f"a{name}")} == set()

    def test_the_reference_lists_the_public_names_of_the_module(self) -> None:
        module = import_module(self.adapter_class.__module__.rpartition(".")[0])
        page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
        _, _, rest = page.partition(f"\n## {module.__name__}\n")
        table, _, _ = rest.partition("\n#")

        listed = re.findall(r"^\| `(\w+)` \| \w.*\. \|$", table, re.MULTILINE)
        assert sorted(listed) == sorted(module.__all__)

    # How an adapter is made.

    def test_strategy_name_is_the_same_as_strategy(self, make: Any) -> None:
        adapter = make(strategy_name="lease", lease_ttl_ticks=5)

        assert (
            adapter.core.strategy.bound == make(strategy="lease", ttl_ticks=5).core.strategy.bound
        )

    def test_a_keyword_that_nobody_knows_is_refused(self, make: Any) -> None:
        with pytest.raises(InvalidInput):
            make(lease_ticks=10)
        with pytest.raises(InvalidInput):
            make(strategy="lazy", strategy_name="lazy")

    def test_what_is_no_core_is_refused(self, make: Any) -> None:
        with pytest.raises(InvalidInput, match="core= is a CoherenceCore, not 3"):
            make(core=3)

    @pytest.mark.parametrize("names", [5, [5], [""], b"plan"])
    def test_what_is_no_list_of_names_is_refused(self, make: Any, names: Any) -> None:
        with pytest.raises(InvalidInput, match="a list of names"):
            self.given(make(), "planner", names)

    def test_one_name_is_one_artifact(self, make: Any) -> None:
        adapter = make()
        adapter.register_artifact(name="plan", content="one")
        name: Any = "plan"

        assert self.given(adapter, "planner", name) == {"plan": "one"}

    def test_adapters_share_a_core_that_its_owner_closes(self, make: Any) -> None:
        with CoherenceCore() as core:
            with self.adapter_class(core=core) as adapter:
                adapter.register_artifact(name="plan", content="one")
            seen = self.given(make(core=core), "reviewer", ["plan"])

            assert seen == {"plan": "one"}
            with pytest.raises(InvalidInput, match="strategy"):
                make(core=core, strategy="lazy")

    # Agents that crash.

    def test_the_example_of_the_page_runs(self, make: Any) -> None:
        current_tick = 3
        adapter = make(
            strategy="lazy",
            crash_recovery=CrashRecoveryConfig(
                enabled=True,
                heartbeat_timeout_ticks=10,
                max_hold_ticks=1000,
            ),
        )
        adapter.register_agent("planner", now_tick=0)
        plan = adapter.register_artifact(name="plan", content="v1")
        self.given(adapter, "planner", [plan], now_tick=1)
        self.committed(adapter, "planner", {plan: "v2"}, now_tick=2)
        adapter.heartbeat(agent_name="planner", now_tick=current_tick)
        adapter.recover(agent_name="planner", now_tick=current_tick)

        assert adapter.core.state("planner", plan) is State.INVALID
        assert self.given(adapter, "planner", [plan], now_tick=4) == {"plan": "v2"}

    def test_a_maximum_hold_that_is_not_longer_than_the_lease_is_refused(self) -> None:
        recovery = CrashRecoveryConfig(enabled=True, max_hold_ticks=300)

        with pytest.raises(InvalidInput, match="max_hold_ticks"):
            self.adapter_class(strategy="lease", lease_ttl_ticks=300, crash_recovery=recovery)

    def test_an_agent_that_fell_silent_loses_its_grant(self, make: Any) -> None:
        adapter = make(crash_recovery=CrashRecoveryConfig(enabled=True))
        adapter.register_artifact(name="plan", content="one")
        self.given(adapter, "crashed", ["plan"], now_tick=1)
        grant = adapter.core.hold("crashed", "plan")
        with pytest.raises(ArtifactHeld):
            self.committed(adapter, "planner", {"plan": "two"})
        reclaimed = adapter.core.enforce_stable_grant_timeouts(current_tick=11)

        assert [(one.agent, one.trigger) for one in reclaimed] == [("crashed", "reclaim_heartbeat")]
        assert self.committed(adapter, "planner", {"plan": "two"}) == {"plan": 2}
        with pytest.raises(GrantLost):
            self.committed(adapter, "crashed", {"plan": "late"})
        grant.release()

    def test_a_process_that_was_killed_blocks_nobody(self, memory_folder: Path) -> None:
        place = str(memory_folder / "store")
        quick = CrashRecoveryConfig(enabled=True, heartbeat_timeout_ticks=1)
        with self.adapter_class(place) as adapter:
            adapter.register_artifact(name="plan", content="one")
            with self._started("holding", place, "holder") as holder:
                assert holder.stdout is not None
                assert holder.stdout.readline() == "holding\n"
                try:
                    # By one that sees the grant for the first time: so it is not silent for it.
                    with pytest.raises(ArtifactHeld):
                        self.committed(adapter, "planner", {"plan": "two"})
                finally:
                    holder.kill()
        with (
            self.adapter_class(place, crash_recovery=quick, tick_seconds=2.0) as adapter,
            adapter.core.hold("planner", "plan", timeout=60),
        ):
            versions = self.committed(adapter, "planner", {"plan": "two"})

        assert versions == {"plan": 2}

    # An engine that is away.

    def test_while_the_engine_is_away_a_prompt_says_that_what_it_shows_may_be_old(
        self, make: Any
    ) -> None:
        store = AwayStore(MemoryStore())
        adapter = make(store, on_error="degrade", bus=False)
        adapter.register_artifact(name="plan", content="one")
        self.given(adapter, "planner", ["plan"])
        store.away = True
        with pytest.warns(CoherenceDegradedWarning):
            found = self.given(adapter, "planner", ["plan"])
        text = adapter._turn("planner", ["plan"]).text()
        store.away = False

        assert found == {"plan": "one"}
        assert "## plan (version 1, the last one known" in text

    def test_a_step_that_begins_while_the_engine_is_away_keeps_what_it_writes(
        self, make: Any
    ) -> None:
        store = AwayStore(MemoryStore())
        adapter = make(store, on_error="degrade", bus=False)
        adapter.register_artifact(name="plan", content="one")
        self.given(adapter, "planner", ["plan"])
        store.away = True
        turn = adapter._turn("planner", [], ["plan"])
        with pytest.warns(CoherenceDegradedWarning):
            turn.commit({"plan": "two"})
        kept = adapter.core.kept()
        store.away = False

        assert [(one.agent, one.action) for one in kept] == [("planner", "publish")]

    # What a step writes without reading it.

    def test_a_step_is_checked_against_what_was_there_when_it_began(self, make: Any) -> None:
        adapter = make()
        adapter.register_artifact(name="plan", content="one")
        late = adapter._turn("planner", [], ["plan", "notes"])
        adapter.core.write("reviewer", "plan", "reviewed")
        adapter.core.write("reviewer", "notes", "noted")

        for name, there in (("plan", 2), ("notes", 1)):
            with pytest.raises(VersionConflict) as refused:
                late.commit({name: "too late"})
            assert refused.value.actual == there
        again = adapter._turn("planner", [], ["plan", "notes"])
        assert again.commit({"plan": "planned", "notes": "new"}) == {"plan": 3, "notes": 2}

    def test_a_step_that_writes_what_a_function_names_is_checked_too(self, make: Any) -> None:
        adapter = make()
        adapter.register_artifact(name="plan", content="one")
        late = adapter._turn("planner", [], lambda made: made)
        adapter.core.write("reviewer", "plan", "reviewed")

        with pytest.raises(VersionConflict):
            late.commit({"plan": "too late"})
        assert adapter._turn("planner", [], lambda made: made).commit({"plan": "new"}) == {
            "plan": 3
        }

    def test_a_step_overwrites_what_it_did_not_read_where_that_is_chosen(self, make: Any) -> None:
        adapter = make(on_conflict="overwrite")
        turn = adapter._turn("planner", [], ["plan"])
        adapter.core.write("reviewer", "plan", "reviewed")

        assert turn.commit({"plan": "planned"}) == {"plan": 2}

    # Several processes.

    def test_a_process_sees_what_another_committed(self, memory_folder: Path, make: Any) -> None:
        adapter = make(str(memory_folder / "store"))
        adapter.register_artifact(name="count", content={"n": 0})
        self.given(adapter, "here", ["count"])
        _finish(self._counting(memory_folder, "there", 1))

        assert self.given(adapter, "here", ["count"]) == {"count": {"n": 1}}

    def test_processes_that_count_in_one_artifact_lose_nothing(self, memory_folder: Path) -> None:
        place = str(memory_folder / "store")
        with self.adapter_class(place) as adapter:
            adapter.register_artifact(name="count", content={"n": 0})
        workers = [
            self._counting(memory_folder, f"agent-{n}", TIMES) for n in range(self.processes)
        ]
        for worker in workers:
            _finish(worker)

        with self.adapter_class(place) as adapter:
            found = self.given(adapter, "reader", ["count"])
        assert found == {"count": {"n": self.processes * TIMES}}
        with ropewalk.open(place) as store:
            assert store.check(read_data=True).ok

    def _counting(self, folder: Path, agent: str, times: int) -> subprocess.Popen[str]:
        return self._started("counting", str(folder / "store"), agent, str(times))

    def _started(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        suite = f"{type(self).__module__}:{type(self).__qualname__}"
        return subprocess.Popen(
            [sys.executable, "-m", f"tests.frameworks.{program}", suite, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _finish(process: subprocess.Popen[str]) -> None:
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
