"""Messages and documents of LangChain in every face of ours, with no import of the adapter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from typing import Any
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from ropewalk import AgentState, Externalized, MemoryStore, ThreadCheckpointer, Timeline, Versioned
from ropewalk import configure
from ropewalk.codec import Codec, decode, encode
from ropewalk.coherence import CoherenceCore

call = {"name": "find", "args": {"x": 1}, "id": "c1"}
used = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
MESSAGES = [
    SystemMessage("s"),
    HumanMessage(["a", {"type": "text", "text": "b"}], id="1"),
    AIMessage("", tool_calls=[call], usage_metadata=used, response_metadata={"m": (1, 2)}),
    ToolMessage("r", tool_call_id="c1", artifact={"raw": [1]}),
    Document(page_content="text", metadata={"n": 1}, id="d"),
]


class State(AgentState):
    docs: Externalized[list[Document]]


def faces(value):
    yield decode(encode(value))
    store = MemoryStore()
    Timeline("a", store).checkpoint({"v": value})
    yield Timeline("a", store).get_state()["v"]
    state = Versioned(store)
    state["v"] = value
    state.commit()
    yield Versioned(store)["v"]
    threads = ThreadCheckpointer(store)
    threads.put_state({"thread_id": "t"}, {"v": value})
    yield ThreadCheckpointer(store).get_state({"thread_id": "t"})["v"]
    one, other = CoherenceCore(store), CoherenceCore(store)
    one.write("one", "v", {"v": value})
    yield other.read("two", "v").value["v"]
    configure(backend=store)
    yield State(docs=value).docs


for found in faces(MESSAGES):
    assert found == MESSAGES, found
    assert list(map(type, found)) == list(map(type, MESSAGES))
    assert found[1].model_fields_set == MESSAGES[1].model_fields_set
assert not [name for name in sys.modules if name.startswith("ropewalk.adapters")]
print("same")
"""


def test_messages_and_documents_come_back_with_no_adapter(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.stdout == "same\n", done.stderr[-3000:]
