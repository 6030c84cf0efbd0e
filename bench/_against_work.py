"""One side of `bench.against`: commits one kind of state, some at a time, when it is told to."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from bench._text import Text

Step = Callable[[int], None]


def plain(text: Text) -> Step:
    """2,000 messages as dicts, and one more."""
    from ropewalk import MemoryStore, Timeline

    timeline = Timeline("agent", store=MemoryStore())
    messages = [{"role": "user", "id": str(n), "content": text.prose(400)} for n in range(2000)]

    def step(number: int) -> None:
        messages.append({"role": "user", "id": f"x{number}", "content": text.prose(400)})
        timeline.checkpoint({"messages": messages})

    return step


def messages(text: Text) -> Step:
    """2,000 messages of LangChain, and one more."""
    from langchain_core.messages import HumanMessage

    from ropewalk import MemoryStore, Timeline
    from ropewalk.codec import Codec

    timeline = Timeline("agent", store=MemoryStore(), codec=Codec(types=[HumanMessage]))
    held = [HumanMessage(text.prose(400), id=str(n)) for n in range(2000)]

    def step(number: int) -> None:
        held.append(HumanMessage(text.prose(400), id=f"x{number}"))
        timeline.checkpoint({"messages": held})

    return step


def saver(text: Text) -> Step:
    """2,000 messages of LangChain in a checkpoint of LangGraph, and one more."""
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.base import empty_checkpoint

    from ropewalk import MemoryStore
    from ropewalk.adapters.langgraph import RopewalkSaver

    kept = RopewalkSaver(MemoryStore())
    held = [HumanMessage(text.prose(400), id=str(n)) for n in range(2000)]
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}

    def step(number: int) -> None:
        nonlocal config
        held.append(HumanMessage(text.prose(400), id=f"x{number}"))
        made = empty_checkpoint()
        made["channel_values"] = {"messages": list(held)}
        versions: Any = {"messages": str(number).zfill(9)}
        made["channel_versions"] = versions
        config = kept.put(config, made, {"source": "loop", "step": number}, versions)

    return step


def decimals(text: Text) -> Step:
    """300 decimals in a dict, of which one changes."""
    from ropewalk import MemoryStore, Timeline

    timeline = Timeline("agent", store=MemoryStore())
    prices = {f"price {n}": Decimal(n) / 7 for n in range(300)}

    def step(number: int) -> None:
        prices[f"price {number % 300}"] = Decimal(number) / 13
        timeline.checkpoint({"prices": prices})

    return step


def small(text: Text) -> Step:
    """A state of 600 bytes."""
    from ropewalk import MemoryStore, Timeline

    timeline = Timeline("agent", store=MemoryStore())
    state = {
        "task": text.prose(350),
        "stage": "parse",
        "scores": [n / 7 for n in range(20)],
        "n": 0,
    }

    def step(number: int) -> None:
        state["n"] = number
        timeline.checkpoint(state)

    return step


WORKS: dict[str, Callable[[Text], Step]] = {
    one.__name__: one for one in (plain, messages, saver, decimals, small)
}


def main(work: str) -> None:
    """Answer each number with the CPU seconds of that many commits."""
    step = WORKS[work](Text(1))
    number = 0
    for line in sys.stdin:
        gc.collect()
        before = time.process_time()
        for _ in range(int(line)):
            step(number)
            number += 1
        sys.stdout.write(json.dumps(time.process_time() - before) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
