"""Artifacts in prompts whose messages are LangChain's."""

from __future__ import annotations

from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)

from ropewalk.coherence import CoherenceCore, Prices, PromptView
from tests.coherence.prompt_reader import read_prompt

LINE = "A step of a plan that takes a line of its own"
PLAN = "\n".join(f"{number}. {LINE}" for number in range(200))


def test_messages_of_langchain_are_read_and_put_anew() -> None:
    core = CoherenceCore()
    core.write("planner", "plan", PLAN)
    view = PromptView(core, "alice", prices=Prices(3, 0.3, 3.75))
    asked = [SystemMessage("You plan."), HumanMessage([{"type": "text", "text": "Begin."}])]
    messages = convert_to_messages(view.render(asked).messages)
    core.write("planner", "plan", new := PLAN.replace("\n7. A", "\n7. Another"))
    call = AIMessage("", tool_calls=[{"id": "1", "name": "look", "args": {}}])
    said = [*messages, call, ToolMessage(messages[1].content, tool_call_id="1")]

    made = view.render(said)
    sent = convert_to_messages(made.messages)

    assert [one.kind for one in made.written] == ["change"]
    assert read_prompt(sent, core.prompt_key()) == {"plan": new}
    assert view.render(sent).written == []
    anew = view.render(sent, cold=True)
    assert anew.rewritten
    assert len(anew.messages) == len(sent) - 1
    assert read_prompt(convert_to_messages(anew.messages), core.prompt_key()) == {"plan": new}
