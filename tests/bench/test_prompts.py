"""The simulated caches by hand-made requests, and what `PromptView` must beat."""

from __future__ import annotations

from bench.prompts import CHURNS, SIDES, AnthropicCache, OpenAICache, measure, said


def test_a_prefix_is_read_where_a_breakpoint_was_within_twenty_blocks() -> None:
    cache, long = AnthropicCache(), said("system", "x" * 8000, True)

    assert cache.bill([long, said("user", "y" * 393)]) == (0, 2002, 100)
    assert cache.bill([long, said("user", "y" * 393)]) == (2002, 0, 100)
    plain = said("system", "x" * 8000)
    near = [plain, *[said("user", "")] * 18, said("user", "", True)]
    far = [plain, *[said("user", "")] * 19, said("user", "", True)]
    assert cache.bill(far)[0] == 0
    assert cache.bill(near)[0] == 2002


def test_a_short_prefix_is_not_cached() -> None:
    cache = AnthropicCache()

    assert [cache.bill([said("user", "x" * 400, True)])[0] for _ in range(2)] == [0, 0]
    other = OpenAICache()
    assert [other.bill([said("user", "x" * 4000)])[0] for _ in range(2)] == [0, 0]


def test_the_longest_prefix_is_read_in_steps() -> None:
    cache = OpenAICache()
    cache.bill([said("user", "x" * 8000)])

    assert cache.bill([said("user", "x" * 6000 + "y" * 2000)])[0] == 1408


def test_the_view_costs_less_than_each_other_way() -> None:
    for by_churn in measure().values():
        for churn in CHURNS:
            dollars = {side: one["dollars"] for side, one in by_churn[str(churn)].items()}
            ours = dollars.pop("PromptView")

            assert len(dollars) == len(SIDES) - 1
            assert ours < min(dollars.values()) * (1.03 if churn == 0 else 1)


def test_agents_share_the_prefix_of_their_artifacts() -> None:
    for by_churn in measure(["PromptView"]).values():
        assert by_churn["0.0"]["PromptView"]["shared"] >= 3 * 7000
