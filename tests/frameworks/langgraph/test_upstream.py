"""LangGraph's own tests, with our checkpointer in the place of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.frameworks.langgraph.upstream import PERSISTENCE, SLICE, folder_of_tests, run

KEEP = Path(sys.prefix) / "upstream"

OF_OTHER_RELEASES = {
    "test_large_cases::test_prebuilt_tool_chat",
    "test_large_cases::test_weather_subgraph[memory]",
    "test_large_cases::test_weather_subgraph[sqlite]",
    "test_large_cases::test_weather_subgraph[sqlite_aes]",
    "test_large_cases_async::test_prebuilt_tool_chat",
    "test_large_cases_async::test_weather_subgraph[memory]",
    "test_large_cases_async::test_weather_subgraph[sqlite_aio]",
    "test_pregel::test_tags_stream_mode_messages",
    "test_pregel_async::test_tags_stream_mode_messages",
}
"""What fails with LangGraph's checkpointers too: it expects an older langchain-core."""
OF_ONE_CHECKPOINTER = {
    # They read what InMemorySaver keeps its data in.
    "test_channels::test_delta_channel_snapshot_version_based",
    "test_delta_channel_update_state::test_abulk_update_state_replays_updates_in_the_order_given",
    "test_delta_channel_update_state::test_bulk_update_state_replays_updates_in_the_order_given",
    # It hands over a serializer that fails.
    "test_pregel_async::test_checkpoint_errors",
    # It wants the snapshot of a delta channel in checkpoints after the one that holds it, as
    # checkpointers have it that keep values by version; SqliteSaver fails it too.
    "test_delta_channel_supersteps_bound::test_counter_reset_after_supersteps_snapshot",
}
"""What asks not for the behaviour of a checkpointer, but for the insides of InMemorySaver."""


def test_a_slice_of_them_passes() -> None:
    outcome = run(folder_of_tests(KEEP), SLICE)

    assert outcome.failed == {}, outcome.printed[-8000:]
    assert outcome.passed > 500


@pytest.mark.soak
def test_all_of_them_pass_that_ask_for_persistence() -> None:
    folder = folder_of_tests(KEEP)
    outcome = run(folder, PERSISTENCE, more=["-n", "2"])
    failed = outcome.failed.keys() - OF_OTHER_RELEASES - OF_ONE_CHECKPOINTER
    if failed:  # Some measure times, and fail on a machine that is busy: ask those again.
        names = {f"{name.partition('::')[0]}.py" for name in failed}
        again = run(folder, sorted(names))
        failed &= again.failed.keys()

    assert failed == set(), outcome.printed[-8000:]
    assert outcome.passed > 2_600
