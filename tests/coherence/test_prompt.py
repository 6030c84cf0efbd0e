"""`PromptView`: what is written into messages, where, and when it is written anew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ropewalk.coherence import CoherenceCore, Prices, PromptView, prices_of, with_artifacts
from ropewalk.coherence.prompt_blocks import INTRODUCTION
from ropewalk.errors import InvalidInput, NotFound
from tests.coherence.prompt_reader import GONE, read_prompt

PLAN = "\n".join(
    f"{number}. A step of a plan that takes a line of its own" for number in range(200)
)
CACHED = Prices(3.0, 0.3, 3.75, 1024)


def changed(number: int) -> str:
    return PLAN.replace(f"\n{number}. A step", f"\n{number}. Another step")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answered(messages: list[Any]) -> list[Any]:
    return [*messages, {"role": "assistant", "content": "Done."}, user("Go on.")]


def test_the_first_call_has_artifacts_behind_the_system_and_before_what_differs(
    core: CoherenceCore,
) -> None:
    core.write("planner", "plan", PLAN)
    core.write("planner", "config", {"b": 1, "a": [True]})
    system = {"role": "system", "content": "You work together."}

    calls = [
        PromptView(core, agent).render([system, user(f"You are {agent}.")]).messages
        for agent in ("alice", "bob")
    ]

    assert calls[0][:2] == calls[1][:2]
    assert calls[0][0] == system and calls[0][1]["content"].startswith(INTRODUCTION)
    assert read_prompt(calls[0], core.prompt_key()) == {
        "plan": PLAN,
        "config": '{"a":[true],"b":1}',
    }


def test_what_stands_in_the_messages_is_not_sent_again_by_any_client(open_core: Any) -> None:
    first = open_core()
    first.write("planner", "plan", PLAN)
    messages = answered(PromptView(first, "alice").render([user("Begin.")]).messages)
    again = first if first.store is None else open_core()

    made = PromptView(again, "alice").render(messages)

    assert made.written == []
    assert made.messages == messages


def test_a_change_is_appended_as_a_patch_and_nothing_before_it_moves(core: CoherenceCore) -> None:
    core.write("planner", "plan", PLAN)
    view = PromptView(core, "alice", prices=CACHED)
    messages = answered(view.render([user("Begin.")]).messages)
    core.write("planner", "plan", changed(7))

    made = view.render(messages)

    assert made.messages[:-1] == messages
    assert [(one.kind, one.id, one.version, one.base) for one in made.written] == [
        ("change", "plan", 2, 1)
    ]
    assert len(made.messages[-1]["content"]) < 500
    assert read_prompt(made.messages, core.prompt_key()) == {"plan": changed(7)}
    assert not made.rewritten


def test_after_so_many_patches_the_text_comes_as_a_whole() -> None:
    core = CoherenceCore()
    core.write("planner", "plan", PLAN)
    view = PromptView(core, "alice", prices=CACHED, most_patches=2)
    messages, kinds = view.render([user("Begin.")]).messages, []
    for number in range(1, 5):
        core.write("planner", "plan", changed(number))
        made = view.render(answered(messages))
        messages = made.messages
        kinds += [one.kind for one in made.written]

    assert kinds == ["change", "change", "full", "change"]


def test_patches_that_are_long_and_strict_views_give_the_text_as_a_whole() -> None:
    for options in ({"rebase_at": 0.01}, {"strict_full": True}):
        core = CoherenceCore()
        core.write("planner", "plan", PLAN)
        view = PromptView(core, "alice", prices=CACHED, **options)
        messages = view.render([user("Begin.")]).messages
        core.write("planner", "plan", changed(1))

        assert [one.kind for one in view.render(answered(messages)).written] == ["full"]


def test_where_nothing_is_cached_the_newest_text_takes_the_place_of_the_old() -> None:
    core = CoherenceCore()
    core.write("planner", "plan", PLAN)
    view = PromptView(core, "alice", prices=Prices(1.0, 1.0, 1.0))
    messages = view.render([user("Begin.")]).messages
    core.write("planner", "plan", changed(1))

    made = view.render(answered(messages))

    assert made.rewritten
    assert len(made.messages) == len(messages) + 2
    assert read_prompt(made.messages, core.prompt_key()) == {"plan": changed(1)}


def test_a_cache_that_expired_lets_everything_be_put_anew() -> None:
    core = CoherenceCore()
    core.write("planner", "plan", PLAN)
    view = PromptView(core, "alice", prices=CACHED)
    messages = view.render([user("Begin.")]).messages
    core.write("planner", "plan", changed(1))
    messages = answered(view.render(answered(messages)).messages)

    assert not view.render(messages).rewritten
    assert view.render(messages, cold=True).rewritten


@pytest.mark.parametrize(
    "request_of_call",
    [
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        {"extra_body": {"context_management": {"edits": [{"type": "compact_20260112"}]}}},
        {"previous_response_id": "resp_1"},
        {"truncation": "auto"},
    ],
)
def test_nothing_is_assumed_where_the_provider_keeps_or_clears(
    request_of_call: dict[str, Any],
) -> None:
    core = CoherenceCore()
    core.write("planner", "plan", PLAN)
    view = PromptView(core, "alice", prices=CACHED)
    messages = answered(view.render([user("Begin.")]).messages)

    made = view.render(messages, request=request_of_call)

    assert read_prompt(made.messages[-1:], core.prompt_key()) == {"plan": PLAN}
    assert view.render(messages, request={"model": "m", "truncation": "disabled"}).written == []


def test_an_artifact_that_was_deleted_is_said_to_be_gone() -> None:
    core = CoherenceCore()
    core.write("planner", "plan", PLAN)
    core.write("planner", "notes", "Some notes.")
    view = PromptView(core, "alice", prices=CACHED)
    messages = answered(view.render([user("Begin.")]).messages)
    core.delete("planner", "notes")

    made = view.render(messages)

    assert read_prompt(made.messages, core.prompt_key()) == {"plan": PLAN, "notes": GONE}
    assert view.render(answered(made.messages)).written == []


def test_a_pointer_is_an_outline_whose_sections_the_model_reads() -> None:
    core = CoherenceCore()
    core.write("planner", "guide", "# One\nfirst\n# Two\nsecond")
    view = PromptView(core, "alice", pointers=["guide"])

    made = view.render([user("Begin.")])

    assert [one.kind for one in made.written] == ["outline"]
    assert "- Two (12)" in made.messages[0]["content"]
    assert "second" not in made.messages[0]["content"]
    assert view.answer({"artifact": "guide", "section": "Two"}) == "# Two\nsecond"
    assert view.answer('{"artifact": "guide"}') == "# One\nfirst\n# Two\nsecond"
    assert "There are: One, Two" in view.answer({"artifact": "guide", "section": "Three"})
    assert "no artifact" in view.answer({"artifact": "other"})
    assert view.tool()["function"]["name"] == "read_artifact"


def test_it_is_counted_when_the_whole_text_is_asked_for_after_a_patch() -> None:
    core = CoherenceCore()
    core.write("planner", "plan", PLAN)
    view = PromptView(core, "alice", prices=CACHED)
    messages = view.render([user("Begin.")]).messages
    view.answer({"artifact": "plan"})
    core.write("planner", "plan", changed(1))
    view.render(answered(messages))

    assert view.asked_after_patch == 0
    assert view.answer({"artifact": "plan"}) == changed(1)
    assert view.asked_after_patch == 1


def test_breakpoints_stand_behind_what_is_shared_and_at_the_newest_message() -> None:
    core = CoherenceCore()
    core.write("planner", "plan", PLAN)
    view = PromptView(core, "alice", style="anthropic")
    messages = view.render([user("Begin.")]).messages
    for _ in range(3):
        messages = view.render(answered(messages)).messages

    assert marks(messages) == [0, len(messages) - 1]
    results = [{"type": "tool_result", "tool_use_id": str(n), "content": "x"} for n in range(25)]
    calls = {"role": "assistant", "content": "I look."}
    long = view.render([*messages, calls, {"role": "user", "content": results}]).messages
    assert marks(long) == [0, len(messages) - 1, len(long) - 1]


def marks(messages: list[Any]) -> list[int]:
    return [i for i, one in enumerate(messages) if "cache_control" in json.dumps(one)]


def test_the_beginning_of_an_answer_stays_last() -> None:
    core = CoherenceCore()
    core.write("planner", "plan", PLAN)
    view = PromptView(core, "alice", prices=CACHED)
    messages = view.render([user("Begin.")]).messages
    core.write("planner", "plan", changed(1))

    made = view.render([*messages, {"role": "assistant", "content": "{"}])

    assert made.messages[-1]["content"] == "{"
    assert read_prompt(made.messages, core.prompt_key()) == {"plan": changed(1)}


def test_the_key_is_one_for_all_clients_of_a_store_and_differs_by_set(open_core: Any) -> None:
    core = open_core()
    other = open_core(name="another set")

    assert core.prompt_key() == core.prompt_key() != other.prompt_key()
    if core.store is not None:
        assert open_core().prompt_key() == core.prompt_key()
        core.write("planner", "plan", PLAN)
        sets = core.store.spaces("coherence/")
        assert [one for one in sets if core.name not in one and "another" not in one] == []


def test_a_value_that_json_cannot_say_needs_a_function_that_shows_it() -> None:
    core = CoherenceCore()
    core.write("planner", "done", {3, 1, 2})

    with pytest.raises(InvalidInput, match="show="):
        PromptView(core, "alice").render([])
    made = PromptView(core, "alice", show=sorted).render([])
    assert read_prompt(made.messages, core.prompt_key()) == {"done": "[1,2,3]"}


@pytest.mark.parametrize("at", [0, -1])
def test_a_block_that_was_edited_does_not_count(at: int) -> None:
    core = CoherenceCore()
    core.write("planner", "plan", PLAN)
    view = PromptView(core, "alice", prices=CACHED)
    messages = view.render([user("Begin.")]).messages
    core.write("planner", "plan", changed(1))
    messages = view.render([*messages, user("Go on.")]).messages
    text = messages[at]["content"]
    assert "1. A" in text
    messages[at] = user(text.replace("1. A", "1. a", 1))

    made = view.render(answered(messages))

    assert [one.kind for one in made.written] == (["full"] if at == 0 else ["change"])
    assert read_prompt(made.messages, core.prompt_key()) == {"plan": changed(1)}


@pytest.mark.parametrize("role", ["tool", "assistant", "user"])
def test_a_block_that_is_repeated_or_quoted_changes_nothing(role: str) -> None:
    core = CoherenceCore()
    core.write("planner", "plan", PLAN)
    view = PromptView(core, "alice", prices=CACHED)
    first = view.render([user("Begin.")]).messages
    core.write("planner", "plan", changed(1))
    messages = view.render(answered(first)).messages
    quoted = {"role": role, "content": ("It said: " * (role == "user")) + first[0]["content"]}

    made = view.render([*messages, quoted, user("Go on.")])

    assert made.written == []


def test_the_plain_function_does_it_for_one_call() -> None:
    core = CoherenceCore()
    core.write("planner", "plan", PLAN)

    messages = with_artifacts(core, "alice", [user("Begin.")], style="anthropic")

    assert read_prompt(messages, core.prompt_key()) == {"plan": PLAN}


def test_prices_come_from_a_package_that_asks_no_server() -> None:
    found = prices_of("claude-haiku-4-5", "anthropic")

    assert (found.cache_read, found.cache_write) == pytest.approx(
        (found.input * 0.1, found.input * 1.25)
    )
    assert found.minimum_prefix == 4096
    with pytest.raises(NotFound):
        prices_of("a model that nobody has")
