"""Conversations: threads with a state, messages and a record, kept in a store."""

from __future__ import annotations

from holdfast.threads._checkpointer import ThreadCheckpointer
from holdfast.threads._message import Message, Role, as_message
from holdfast.threads._paging import Page
from holdfast.threads._parts import (
    AudioPart,
    ImagePart,
    OtherPart,
    Part,
    TextPart,
    ToolCall,
    ToolResult,
)
from holdfast.threads._thread_info import ThreadInfo, as_thread_info
from holdfast.threads._usage import Usage

__all__ = [
    "AudioPart",
    "ImagePart",
    "Message",
    "OtherPart",
    "Page",
    "Part",
    "Role",
    "TextPart",
    "ThreadCheckpointer",
    "ThreadInfo",
    "ToolCall",
    "ToolResult",
    "Usage",
    "as_message",
    "as_thread_info",
]
