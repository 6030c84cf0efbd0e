"""How the messages of AutoGen's model contexts are read as ours; needs no AutoGen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ropewalk.threads import shape

SHAPE: Final = "autogen"


@shape(SHAPE)
def read(item: Any) -> dict[str, Any] | None:
    """A message for a model, as the dict of one for OpenAI."""
    if not isinstance(item, Mapping):
        return None
    content = item["content"]
    match item.get("type"):
        case "SystemMessage":
            return {"role": "system", "content": content}
        case "UserMessage":
            return {"role": "user", "content": _text(content)}
        case "AssistantMessage" if isinstance(content, str):
            return {"role": "assistant", "content": content}
        case "AssistantMessage":
            calls = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for call in content
            ]
            return {"role": "assistant", "content": item.get("thought"), "tool_calls": calls}
        case "FunctionExecutionResultMessage":
            text = "\n".join(result["content"] for result in content)
            return {"role": "tool", "content": text, "tool_call_id": content[0]["call_id"]}
    return None


def _text(content: Any) -> str:
    """The text of a message; an image is shown as one."""
    parts = [content] if isinstance(content, str) else content
    return "\n".join(one if isinstance(one, str) else "[image]" for one in parts)
