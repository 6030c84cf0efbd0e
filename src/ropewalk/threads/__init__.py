"""Conversations: threads with a state, messages and a record, kept in a store."""

from __future__ import annotations

from ropewalk.threads._checkpointer import ThreadCheckpointer
from ropewalk.threads._message import Message, Role, as_message
from ropewalk.threads._paging import Page
from ropewalk.threads._parts import (
    AudioPart,
    ImagePart,
    OtherPart,
    Part,
    TextPart,
    ToolCall,
    ToolResult,
)
from ropewalk.threads._thread_info import ThreadInfo, as_thread_info
from ropewalk.threads._usage import Usage

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
