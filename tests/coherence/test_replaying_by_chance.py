"""What `replay` finds in runs made by chance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coherence.runs import Run

AGENTS = ["a", "b", "c"]
steps = st.lists(
    st.tuples(st.sampled_from(AGENTS), st.sampled_from(["read", "write", "again"])), max_size=40
)


def carried_out(run: Run, plan: list[tuple[str, str]]) -> int:
    """Let agents do what a plan says, as it should be; the version at the end."""
    run.write("a", 1, 1, read_version=0)
    version, seen = 1, {"a": 1}
    for at, (agent, what) in enumerate(plan, 2):
        if what == "write" and seen.get(agent) == version:
            version += 1
            run.write(agent, version, at, read_version=version - 1)
        elif what == "again":
            version += 1
            run.write(agent, version, at, read_version=version - 1, merged=True)
        else:
            run.read(agent, version, at)
        seen[agent] = version
    return version


@given(plan=steps)
def test_a_run_in_which_everybody_does_right_has_no_findings(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, str]]
) -> None:
    run = Run(tmp_path_factory.mktemp("run"))
    carried_out(run, plan)

    assert run.found() == []


@given(plan=steps, agent=st.sampled_from(AGENTS))
def test_a_late_read_at_the_end_is_always_found(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, str]], agent: str
) -> None:
    run = Run(tmp_path_factory.mktemp("run"))
    version = carried_out(run, [*plan, ("b", "again")])
    run.read(agent, version - 1, len(plan) + 10)

    assert "stale-read" in run.found()


@given(plan=steps, agent=st.sampled_from(AGENTS))
def test_a_write_at_the_end_from_what_its_agent_saw_before_is_always_found(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, str]], agent: str
) -> None:
    run = Run(tmp_path_factory.mktemp("run"))
    other = next(one for one in AGENTS if one != agent)
    version = carried_out(run, [*plan, (agent, "read"), (other, "again")])
    run.write(agent, version + 1, len(plan) + 10)

    assert run.found() == ["lost-update"]
