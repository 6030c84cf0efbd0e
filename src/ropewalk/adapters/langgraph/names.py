"""Where a thread of LangGraph lives: its id as the name of a space, and back.

LangGraph takes any text for the id of a thread; names of spaces have rules. What they do not
allow is escaped. A very long id becomes its hash, and the thread itself notes what it was.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote

from ropewalk.errors import InvalidName
from ropewalk.store import ref_name, space_name, split_name

TENANT: Final = "langgraph"
CHECKPOINTS: Final = ref_name("langgraph", "checkpoints")
"""The ref that leads to the index of a thread."""

_ESCAPED: Final = "~"
_HASHED: Final = "~~"


def space_of(thread: str) -> str:
    """The space of a thread."""
    if not thread.startswith(_ESCAPED):
        try:
            return space_name(TENANT, thread)
        except InvalidName:
            pass
    escaped = quote(thread.encode(errors="surrogatepass"), safe="").replace(".", "%2E")
    try:
        return space_name(TENANT, _ESCAPED + escaped)
    except InvalidName:
        digest = sha256(thread.encode(errors="surrogatepass")).hexdigest()
        return space_name(TENANT, _HASHED + digest)


def thread_of(space: str) -> str | None:
    """The thread of a space; None if only the thread itself knows."""
    name = split_name(space)[1]
    if name.startswith(_HASHED):
        return None
    return unquote(name[1:], errors="surrogatepass") if name.startswith(_ESCAPED) else name


def is_hashed(space: str) -> bool:
    """Whether the id of a thread cannot be seen in the name of its space."""
    return thread_of(space) is None
