"""How the messages of LlamaIndex are read by `ropewalk messages`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ropewalk.threads import shape


@shape("llamaindex")
def read_message(item: Any) -> dict[str, Any] | None:
    """A dumped `ChatMessage`, which consists of blocks, as a message of OpenAI's chat."""
    if not isinstance(item, Mapping) or "blocks" not in item:
        return None
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for block in item["blocks"]:
        kind = block.get("block_type")
        if kind == "text":
            parts.append({"type": "text", "text": block["text"]})
        elif kind == "tool_call":
            called = {"name": block["tool_name"], "arguments": _text(block["tool_kwargs"])}
            call = {"id": block.get("tool_call_id") or "", "type": "function", "function": called}
            calls.append(call)
        elif kind == "image" and block.get("url"):
            parts.append({"type": "image_url", "image_url": {"url": str(block["url"])}})
        else:
            parts.append({**block, "type": kind})
    role = {"function": "tool", "model": "assistant", "chatbot": "assistant"}
    made: dict[str, Any] = {"role": role.get(item["role"], item["role"]), "content": parts}
    if len(parts) == 1 and parts[0]["type"] == "text":
        made["content"] = parts[0]["text"]
    if calls:
        made["tool_calls"] = calls
    if made["role"] == "tool":
        made["tool_call_id"] = str(item["additional_kwargs"].get("tool_call_id", ""))
    return made


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
