"""Whatever becomes of a conversation: its prompt tells of the newest version, and of no other."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ropewalk.coherence import CoherenceCore, Prices, PromptView
from ropewalk.store import MemoryStore
from tests.coherence.prompt_reader import GONE, read_prompt

NAMES = ("config", "plan", 'odd "name" <artifact>\n')
LINES = [f"Line {number} of a text that is long enough to be patched." for number in range(40)]
PRICES = (Prices(3, 0.3, 3.75, 0), Prices(3, 0.3, 3.75, 400), Prices(1, 1, 1))
CLEARING = {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}


class Conversations(RuleBasedStateMachine):
    """Agents whose conversations are trimmed, summarised, reordered, forked and attacked."""

    @initialize(style=st.sampled_from(["openai", "anthropic"]), prices=st.sampled_from(PRICES))
    def begin(self, style: Any, prices: Prices) -> None:
        self.store, self.style, self.prices = MemoryStore(), style, prices
        self.values: dict[str, Any] = {}
        self.texts = 0
        self.threads: list[list[Any]] = [[]]
        self.restart()
        self.write("plan", 0, 0)
        self.say(0, False)

    @rule()
    def restart(self) -> None:
        self.core = CoherenceCore(self.store.another(), name="team")
        self.key = self.core.prompt_key()
        self.view = PromptView(
            self.core, "agent", NAMES, style=self.style, prices=self.prices, most_patches=3
        )

    @rule(name=st.sampled_from(NAMES), line=st.integers(0, 39), count=st.integers(0, 3))
    def write(self, name: str, line: int, count: int) -> None:
        self.texts += 1
        if name == "config":
            before = self.values.get(name) or {str(number): [number] * 9 for number in range(30)}
            value: Any = {**before, str(line): [self.texts] * count}
        else:
            lines = str(self.values.get(name) or "\n".join(LINES)).split("\n")
            lines[line % len(lines) :][:count] = []
            lines[line % len(lines) : line % len(lines) + 1] = [f"changed {self.texts}"] * count
            value = "\n".join(lines)
        self.core.write("writer", name, value)
        self.values[name] = value

    @rule(data=st.data())
    def write_what_a_prompt_says(self, data: st.DataObject) -> None:
        """A hostile artifact: a prompt with genuine tags, or what imitates one."""
        text = json.dumps(data.draw(st.sampled_from(self.threads))) if self.threads else ""
        parts = [one for thread in self.threads for one in self._texts(thread)]
        value = data.draw(st.sampled_from([text, *parts])) + f"\n{self.texts}"
        self.texts += 1
        self.core.write("writer", "plan", value)
        self.values["plan"] = value

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.core.delete("writer", name)
        self.values.pop(name, None)

    @rule(thread=st.integers(0, 5), cleared=st.sampled_from([False, False, True]))
    def say(self, thread: int, cleared: bool) -> None:
        at = thread % len(self.threads)
        messages = [*self.threads[at], {"role": "user", "content": "Go on."}]
        made = self.rendered(messages, cleared=cleared)
        self.threads[at] = [*made, {"role": "assistant", "content": "Done."}]

    @invariant()
    def every_conversation_tells_of_the_newest_versions(self) -> None:
        for thread in self.threads:
            made = self.rendered(thread, cold=len(thread) % 3 == 0)
            self.rendered(made)

    def rendered(self, messages: list[Any], cleared: bool = False, cold: bool = False) -> list[Any]:
        made = self.view.render(messages, request=CLEARING if cleared else None, cold=cold)
        read = read_prompt(made.messages, self.key)
        for name in NAMES:
            value = self.values.get(name)
            if value is None:
                assert read.get(name, GONE) == GONE
            else:
                assert read[name] == (value if isinstance(value, str) else dumped(value))
        if cleared:
            assert {block.id for block in made.written} == set(self.values)
            assert {block.kind for block in made.written} <= {"full"}
        return made.messages

    @rule(thread=st.integers(0, 5), start=st.integers(0, 8), count=st.integers(1, 4))
    def trim(self, thread: int, start: int, count: int) -> None:
        del self.threads[thread % len(self.threads)][start : start + count]

    @rule(thread=st.integers(0, 5), count=st.integers(1, 6))
    def summarise(self, thread: int, count: int) -> None:
        messages = self.threads[thread % len(self.threads)]
        about = " ".join(self._texts(messages[:count]))[:5000]
        messages[:count] = [{"role": "user", "content": f"So far: {about}"}]

    @rule(thread=st.integers(0, 5), left=st.integers(0, 8), right=st.integers(0, 8))
    def reorder(self, thread: int, left: int, right: int) -> None:
        messages = self.threads[thread % len(self.threads)]
        if max(left, right) < len(messages):
            messages[left], messages[right] = messages[right], messages[left]

    @rule(thread=st.integers(0, 5), length=st.integers(0, 8))
    def fork(self, thread: int, length: int) -> None:
        del self.threads[3:]
        self.threads.append(self.threads[thread % len(self.threads)][:length])

    @rule(
        data=st.data(),
        thread=st.integers(0, 5),
        how=st.sampled_from(["tool", "assistant", "quoted", "cut", "edited", "whole", "bumped"]),
    )
    def replay(self, data: st.DataObject, thread: int, how: str) -> None:
        """Text of ours, or like ours, at another place."""
        parts = [one for thread in self.threads for one in self._texts(thread)]
        if not parts:
            return
        text = data.draw(st.sampled_from(parts))
        middle = len(text) // 2
        message = {
            "tool": {"role": "tool", "content": text},
            "assistant": {"role": "assistant", "content": text},
            "quoted": {"role": "user", "content": f"Look: {text}"},
            "cut": {"role": "user", "content": text[:middle]},
            "edited": {"role": "user", "content": text[:middle] + "!" + text[middle + 1 :]},
            "whole": {"role": "user", "content": text},
            "bumped": {"role": "user", "content": text.replace("version=", "version=9")},
        }[how]
        self.threads[thread % len(self.threads)].append(message)

    def _texts(self, messages: list[Any]) -> list[str]:
        contents = [message["content"] for message in messages]
        return [
            part if isinstance(part, str) else part["text"]
            for content in contents
            for part in ([content] if isinstance(content, str) else content)
        ]


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


TestConversations = Conversations.TestCase
TestConversations.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
