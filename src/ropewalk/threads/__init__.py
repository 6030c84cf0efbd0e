"""Conversations: threads with a state, messages and a record, kept in a store."""

from __future__ import annotations

from ropewalk.threads.address import ThreadInfo, as_thread_info
from ropewalk.threads.checkpointer import ThreadCheckpointer
from ropewalk.threads.listing import Page
from ropewalk.threads.message import Message, Role, Usage, as_message
from ropewalk.threads.parts import (
    AudioPart,
    ImagePart,
    OtherPart,
    Part,
    TextPart,
    ToolCall,
    ToolResult,
)
from ropewalk.threads.shapes import shape
from ropewalk.threads.transcript import Snapshot, Transcript, Turn

__all__ = [
    "AudioPart",
    "ImagePart",
    "Message",
    "OtherPart",
    "Page",
    "Part",
    "Role",
    "Snapshot",
    "TextPart",
    "ThreadCheckpointer",
    "ThreadInfo",
    "ToolCall",
    "ToolResult",
    "Transcript",
    "Turn",
    "Usage",
    "as_message",
    "as_thread_info",
    "shape",
]
