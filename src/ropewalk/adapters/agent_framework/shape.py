"""How the messages of Agent Framework are read as ours; needs no Agent Framework."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ropewalk.threads import shape

SHAPE: Final = "agent-framework"


@shape(SHAPE)
def read(item: Any) -> dict[str, Any] | None:
    """A message, as the dict of one for OpenAI."""
    if not isinstance(item, Mapping):
        return None
    contents = item["contents"]
    text = "\n".join(one["text"] for one in contents if one["type"] == "text")
    made: dict[str, Any] = {"role": item["role"], "content": text}
    calls = [one for one in contents if one["type"] == "function_call"]
    results = [one for one in contents if one["type"] == "function_result"]
    if calls:
        made["tool_calls"] = [
            {
                "id": one["call_id"],
                "type": "function",
                "function": {"name": one["name"], "arguments": _text(one.get("arguments") or {})},
            }
            for one in calls
        ]
    elif results:
        made["tool_call_id"] = results[0]["call_id"]
        made["content"] = "\n".join(_text(one.get("result")) for one in results)
    return made


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
