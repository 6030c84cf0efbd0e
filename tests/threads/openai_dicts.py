"""OpenAI-style dicts: one of each kind by hand, and any number by Hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Raw = dict[str, Any]

CHAT: list[Raw] = [
    {"role": "user", "content": "Hello"},
    {"role": "user", "content": "Hello", "name": "Ada"},
    {"role": "system", "content": ""},
    {"role": "developer", "content": [{"type": "text", "text": "Be short."}]},
    {"role": "user", "content": []},
    {"role": "user"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look", "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {
                "type": "image_url",
                "image_url": {"url": "data:image/png;base64,AA", "detail": "low"},
            },
            {"type": "image_url", "image_url": {"url": "u", "detail": None, "width": 3}},
            {"type": "image_url", "image_url": "u"},
            {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav", "rate": 8}},
            {"type": "file", "file": {"file_id": "file-1", "filename": "a.pdf"}},
            {"type": "video_of_tomorrow", "video": [1, {"deep": None}]},
            {"type": "text", "text": None},
            {"type": ["not", "a", "name"]},
            {"no": "type"},
        ],
    },
    {"role": "user", "content": ["bare", {"type": "text", "text": "and not"}]},
    {"role": "assistant", "content": "Sure.", "refusal": None, "annotations": [], "audio": None},
    {
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "No."}, {"type": "text", "text": "Sorry."}],
    },
    {"role": "assistant", "content": None, "refusal": "I will not."},
    {"role": "assistant", "audio": {"id": "audio_1"}},
    {
        "role": "assistant",
        "content": None,
        "audio": {"id": "a", "data": "UklG", "expires_at": 5, "transcript": "Good morning"},
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
            {"id": "c2", "type": "custom", "custom": {"name": "g", "input": "free text"}},
            {"id": "c3", "type": "function", "function": {"name": "f", "arguments": "{broken"}},
        ],
    },
    {"role": "assistant", "tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "Wait", "marks": [1]}],
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "f", "arguments": "{}", "parsed": {"a": [1]}},
                "marks": [1],
            }
        ],
    },
    {"role": "assistant", "content": "", "tool_calls": [{"type": "of tomorrow", "id": 7}]},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "assistant", "content": None, "tool_calls": None, "name": None},
    {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "function", "name": "f", "content": "42"},
    {"role": "tool", "tool_call_id": "c1", "content": "42"},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "42"}]},
    {"role": "tool", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "42"}]},
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "c1",
                "content": [{"type": "text", "text": "42"}],
                "is_error": False,
            },
            {"type": "tool_result", "tool_use_id": "c2", "content": None},
            {"type": "tool_result", "tool_use_id": "c3", "is_error": None},
        ],
    },
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": [1]}}],
    },
    {
        "id": "msg_1",
        "object": "thread.message",
        "created_at": 1698983503,
        "role": "user",
        "content": [{"type": "text", "text": {"value": "Hi", "annotations": [{"index": 1}]}}],
        "metadata": {"key": "value"},
    },
    {
        "role": "assistant",
        "content": "Hi",
        "id": 7,
        "created_at": "2025-01-31T12:00:00+02:00",
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 4,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 1},
        },
    },
    {"role": "user", "content": "Hi", "id": None, "created_at": None, "usage": None},
    {"role": "user", "content": "Hi", "created_at": 1698983503.0, "metadata": None},
    {"role": "user", "content": "Hi", "created_at": 1698983503.123456789, "metadata": {}},
    {"role": "user", "content": "Hi", "extra": {"a": 1}, "text": "no field", "kind": 3},
]

ITEMS: list[Raw] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []},
            {"type": "refusal", "refusal": "No."},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
            {"type": "input_image", "file_id": "file-1"},
            {"type": "input_image", "image_url": None, "file_id": "file-1", "detail": None},
            {"type": "input_image"},
            {"type": "input_file", "file_data": "JVBE", "filename": "a.pdf"},
        ],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "weather",
        "arguments": '{"city": "Lisbon"}',
        "status": "completed",
    },
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": ""},
    {"type": "function_call", "name": "weather"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "", "content": 5},
    {"type": "function_call_output", "call_id": "c", "output": "1", "name": "f"},
    {"type": "function_call_output", "call_id": "c", "output": "1", "tool_calls": "of it"},
    {"type": "custom_tool_call", "call_id": "call_1", "name": "sql", "input": "select 1"},
    {"type": "function_call_output", "call_id": "call_1", "output": "Sunny"},
    {
        "type": "function_call_output",
        "id": None,
        "call_id": "call_1",
        "output": [
            {"type": "input_text", "text": "Sunny"},
            {"type": "input_image", "file_id": "f"},
        ],
        "status": None,
    },
    {"type": "function_call_output", "call_id": "call_1", "output": {"not": "text"}},
    {"type": "custom_tool_call_output", "call_id": "call_1", "output": "1"},
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Thinking of it"}],
        "encrypted_content": "gAAA",
        "status": None,
    },
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "cats"}},
    {"type": "item_reference", "id": "msg_1"},
    {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}},
]

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_atoms = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | _texts
junk = st.recursive(
    _atoms,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_SPOKEN = ["refusal", "audio", "annotations", "function_call", "status", "type", "x", "text", "url"]
_junk_keys = st.sampled_from(_SPOKEN) | _texts
_junk_dicts = st.dictionaries(_junk_keys, junk, max_size=3)


def _dict(required: Raw, optional: Raw | None = None) -> st.SearchStrategy[Raw]:
    """Dicts with these keys, and now and then with others that nobody knows."""
    known = st.fixed_dictionaries(required, optional=optional or {})
    return st.builds(lambda junk, known: {**junk, **known}, st.just({}) | _junk_dicts, known)


_PART_TYPES = ["text", "input_text", "output_text", "refusal", "image_url", "input_image"]
_PART_TYPES += ["input_audio", "file", "tool_use", "tool_result", "of_tomorrow"]
_inner = _dict(
    {},
    {
        "url": _texts | st.none(),
        "detail": _texts | st.none(),
        "data": _texts,
        "format": _texts,
        "value": _texts,
        "name": _texts,
        "arguments": _texts,
        "input": _texts,
    },
)
parts = _dict(
    {"type": st.sampled_from(_PART_TYPES)},
    {
        "text": _texts | st.none() | _inner,
        "refusal": _texts | st.none(),
        "image_url": _texts | st.none() | _inner,
        "detail": _texts | st.none(),
        "file_id": _texts | st.none(),
        "input_audio": _inner | junk,
        "id": _texts,
        "name": _texts,
        "input": junk,
        "tool_use_id": _texts,
        "content": _texts | st.none() | st.lists(_texts, max_size=2),
        "is_error": st.booleans() | st.none(),
    },
)
_contents = _texts | st.none() | st.lists(parts | _texts | _junk_dicts, max_size=4)
_calls = _dict(
    {},
    {
        "id": _texts | st.none(),
        "type": st.sampled_from(["function", "custom", "tool_use", "of_tomorrow"]),
        "function": _inner | junk,
        "custom": _inner | junk,
    },
)
_usages = _dict(
    {},
    {
        name: st.integers(0, 10**9) | st.none()
        for name in ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
    }
    | {"total_tokens": st.integers(0, 10**9) | st.none()},
)
_times = st.integers(0, 2**31) | st.floats(0, 2**31) | st.none()
_isos = st.datetimes().map(lambda value: value.isoformat() + "+00:00")
_beside: Raw = {
    "id": st.text(st.characters(codec="ascii"), min_size=1) | st.integers() | st.none(),
    "created_at": _times | _isos,
    "usage": _usages | st.none(),
    "metadata": _junk_dicts | st.none(),
}
chat_dicts = _dict(
    {"role": st.sampled_from(["user", "assistant", "system", "developer", "tool", "function"])},
    {
        "content": _contents,
        "name": _texts | st.none(),
        "tool_calls": st.lists(_calls, max_size=3) | st.none(),
        "tool_call_id": _texts | st.none(),
        **_beside,
    },
)
_ITEM_TYPES = ["function_call", "function_call_output", "custom_tool_call", "reasoning"]
item_dicts = _dict(
    {"type": st.sampled_from([*_ITEM_TYPES, "custom_tool_call_output", "of_tomorrow"])},
    {
        "call_id": _texts | st.none(),
        "name": _texts | st.none(),
        "arguments": _texts | st.none(),
        "input": _texts | st.none(),
        "output": _contents,
        "summary": junk,
        **_beside,
    },
)
dicts = chat_dicts | item_dicts
