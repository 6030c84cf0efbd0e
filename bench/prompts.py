"""What artifacts in prompts cost: `python -m bench.prompts [--json]`.

Four agents share an artifact of about 4,000 tokens for 20 turns, behind a system prompt of 3,000.
Each turn of an agent adds a question and an answer of 500 tokens to its conversation, which is sent
again as a whole. Between two turns the artifact changes with the probability `churn`, by a patch of
about 300 tokens. Every request goes through a simulated prefix cache by the rules of two providers,
and is billed. Four characters are a token. No clock and no network: each run gives the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from random import Random
from typing import Any

from bench._text import Text
from ropewalk.coherence import CoherenceCore, PromptView
from ropewalk.coherence.prices import ANTHROPIC, OPENAI, Prices

AGENTS, TURNS = 4, 20
SYSTEM, ARTIFACT, QUESTION, ANSWER = 3_000, 4_000, 100, 400
CHANGED_LINES = 8
CHURNS = (0.0, 0.25, 0.5, 1.0)
LOOKBACK, STEP = 20, 128

Message = dict[str, Any]


PROSE = Text(1).prose(400_000)


def words(seed: int, tokens: int) -> str:
    """A piece of the prose, another one for each seed."""
    start = seed * 7919 % (len(PROSE) - tokens * 4 - 20)
    return f"{seed:06} {PROSE[start : start + tokens * 4 - 7]}"


def lines(seed: int, tokens: int) -> list[str]:
    text = words(seed, tokens).replace("\n", " ")
    return [text[i : i + 75] for i in range(0, len(text), 75)]


def blocks(messages: Sequence[Message]) -> list[tuple[str, bool]]:
    """What a provider sees: blocks of content in order, and whether each has a breakpoint."""
    found = []
    for message in messages:
        content = message["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        found += [(f"{message['role']}:{part['text']}", "cache_control" in part) for part in parts]
    return found


class AnthropicCache:
    """Prefixes that end at a breakpoint, found again at or within 20 blocks before one."""

    prices = ANTHROPIC

    def __init__(self) -> None:
        self.known: set[bytes] = set()

    def bill(self, messages: Sequence[Message]) -> tuple[int, int, int]:
        """The tokens that were read from the cache, written to it, and neither."""
        digest, ends, total, marks = sha256(), [], 0, []
        for index, (text, marked) in enumerate(blocks(messages)):
            digest.update(text.encode())
            total += -(-len(text) // 4)
            ends.append((digest.copy().digest(), total))
            if marked and total >= self.prices.minimum_prefix:
                marks.append(index)
        assert len(marks) <= 4, "at most four breakpoints"
        hit = -1
        for mark in marks:
            near = range(mark, max(-1, mark - LOOKBACK), -1)
            hit = max(hit, next((one for one in near if ends[one][0] in self.known), -1))
        self.known |= {ends[mark][0] for mark in marks}
        read = ends[hit][1] if hit >= 0 else 0
        last = ends[marks[-1]][1] if marks else 0
        written = max(0, last - read)
        return read, written, total - read - written


class OpenAICache:
    """The longest prefix that any request began with, in steps of 128 tokens from 1,024 on."""

    prices = OPENAI

    def __init__(self) -> None:
        self.known: set[bytes] = set()

    def bill(self, messages: Sequence[Message]) -> tuple[int, int, int]:
        text = "".join(text for text, _ in blocks(messages))
        digest, read, size, seen = sha256(), 0, STEP * 4, True
        prefixes = []
        for start in range(0, len(text) - size + 1, size):
            digest.update(text[start : start + size].encode())
            prefixes.append(digest.copy().digest())
            seen = seen and prefixes[-1] in self.known
            if seen:
                read = (start + size) // 4
        self.known |= set(prefixes)
        total = -(-len(text) // 4)
        read = read if read >= self.prices.minimum_prefix else 0
        return read, 0, total - read


def said(role: str, text: str, marked: bool = False) -> Message:
    part: Message = {"type": "text", "text": text}
    if marked:
        part["cache_control"] = {"type": "ephemeral"}
    return {"role": role, "content": [part]}


def marked(messages: list[Message], *indexes: int) -> list[Message]:
    """With breakpoints, for baselines that keep none in their conversation."""
    made = list(messages)
    for index in indexes:
        one = made[index]
        made[index] = said(one["role"], one["content"][0]["text"], True)
    return made


class Side:
    """One agent, and how it is shown the artifact."""

    def __init__(self, core: CoherenceCore, name: str) -> None:
        self.core, self.name = core, name
        self.system = said("system", words(1, SYSTEM))
        self.role = said("user", f"You are {name}. " + words(hash_of(name), 40))
        self.talk: list[Message] = []

    def text(self) -> str:
        return str(self.core.read(self.name, "plan").value)

    def request(self, question: str) -> list[Message]:
        raise NotImplementedError

    def answered(self, answer: str) -> None:
        self.talk.append(said("assistant", answer))


class FullEveryTurn(Side):
    def request(self, question: str) -> list[Message]:
        self.talk += [said("user", self.text()), said("user", question)]
        return marked([self.system, self.role, *self.talk], 0, -1)


class AppendedWhenChanged(Side):
    """The first text stands where agents share it, which is the best that this side can do."""

    last = first = ""

    def request(self, question: str) -> list[Message]:
        text = self.text()
        self.first = self.first or text
        if self.last and text != self.last:
            self.talk.append(said("user", text))
        self.last = text
        self.talk.append(said("user", question))
        return marked([self.system, said("user", self.first), self.role, *self.talk], 0, 1, -1)


class RewrittenInSystem(Side):
    def request(self, question: str) -> list[Message]:
        self.talk.append(said("user", question))
        inside = said("system", self.text())
        return marked([self.system, inside, self.role, *self.talk], 0, 1, -1)


class LastMessage(Side):
    def request(self, question: str) -> list[Message]:
        self.talk.append(said("user", question))
        return marked([self.system, self.role, *self.talk, said("user", self.text())], 0, -2)


class View(Side):
    def __init__(self, core: CoherenceCore, name: str, prices: Prices = ANTHROPIC) -> None:
        super().__init__(core, name)
        self.view = PromptView(core, name, ["plan"], style="anthropic", prices=prices)
        self.talk = [self.system, self.role]

    def request(self, question: str) -> list[Message]:
        self.talk = self.view.render([*self.talk, said("user", question)]).messages
        return marked(self.talk, 0)


def hash_of(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big")


SIDES: dict[str, Callable[..., Side]] = {
    "full text every turn": FullEveryTurn,
    "appended when changed": AppendedWhenChanged,
    "rewritten in system": RewrittenInSystem,
    "last message": LastMessage,
    "PromptView": View,
}


def run(make: Callable[..., Side], cache: Any, churn: float, seed: int = 7) -> dict[str, float]:
    """The tokens and dollars of all calls of one side."""
    random, core, plan = Random(seed), CoherenceCore(), lines(2, ARTIFACT)
    core.write("writer", "plan", "\n".join(plan))
    options = {"prices": cache.prices} if make is View else {}
    agents = [make(core, f"agent-{number}", **options) for number in range(AGENTS)]
    sums = {"read": 0, "written": 0, "plain": 0, "shared": 0}
    for turn in range(TURNS):
        if turn and random.random() < churn:
            at = random.randrange(len(plan) - CHANGED_LINES)
            plan[at : at + CHANGED_LINES] = lines(1000 + turn, 150)[:CHANGED_LINES]
            core.write("writer", "plan", "\n".join(plan))
        for number, agent in enumerate(agents):
            seed_of_turn = turn * AGENTS + number
            found = cache.bill(agent.request(words(5000 + seed_of_turn, QUESTION)))
            for name, tokens in zip(("read", "written", "plain"), found, strict=True):
                sums[name] += tokens
            if turn == 0 and number:
                sums["shared"] += found[0]
            agent.answered(words(9000 + seed_of_turn, ANSWER))
    cost = cache.prices.cost(read=sums["read"], written=sums["written"], plain=sums["plain"])
    return {**sums, "tokens": sums["read"] + sums["written"] + sums["plain"], "dollars": cost}


def measure(sides: Sequence[str] = tuple(SIDES)) -> dict[str, Any]:
    """All figures: by provider, churn and side."""
    providers = {"anthropic": AnthropicCache, "openai": OpenAICache}
    return {
        name: {
            str(churn): {side: run(SIDES[side], cache(), churn) for side in sides}
            for churn in CHURNS
        }
        for name, cache in providers.items()
    }


def table(found: dict[str, Any]) -> str:
    rows = ["| Rules | Churn | Side | Tokens sent | Read across agents at the start | Dollars |"]
    rows.append("|---|---|---|---|---|---|")
    for provider, by_churn in found.items():
        for churn, by_side in by_churn.items():
            for side, one in by_side.items():
                rows.append(
                    f"| {provider} | {churn} | {side} | {one['tokens']:,.0f} "
                    f"| {one['shared']:,.0f} | {one['dollars']:.4f} |"
                )
    return "\n".join(rows)


if __name__ == "__main__":
    figures = measure()
    print(json.dumps(figures, indent=1) if "--json" in sys.argv else table(figures))
