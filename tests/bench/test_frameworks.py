"""The family `frameworks`. What needs a framework is tested beside it, in tests/frameworks."""

from __future__ import annotations

import pytest

from bench import __main__ as command
from bench import _registry as registry
from bench.engines.frameworks import FRAMEWORKS


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_conversation_is_bounded_in_bytes_and_beside_the_frameworks_own(framework: str) -> None:
    scenario = registry.scenarios()[f"frameworks-{framework.replace('_', '-')}"]
    found = {target.metric: target for target in scenario.targets}

    assert found["stored_x"].limit == 1.5
    for metric in ("cpu_s", "new_ms"):
        assert (found[metric].limit, found[metric].over) == (1.0, (f"{framework}-own",))
    assert {info.environment for info in scenario.sides(registry.engines()).values()} == {
        "frameworks"
    }


def test_the_family_is_one_word() -> None:
    chosen = command.picked(command.arguments(["frameworks"]))

    assert len(chosen) >= len(FRAMEWORKS)
    assert all(one.name.startswith("frameworks-") for one in chosen)
