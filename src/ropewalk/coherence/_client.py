"""A client: what the reads and writes of one `CoherenceCore` have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ropewalk.codec import Codec
from ropewalk.coherence._authorities._authority import Authority
from ropewalk.coherence._content import Contents
from ropewalk.coherence._protocol import Directory
from ropewalk.coherence._strategies import Strategy
from ropewalk.coherence._telling import Telling


@dataclass(frozen=True, slots=True)
class Client:
    """The authority, and what this process knows of it."""

    name: str
    """Of the set of artifacts."""
    instance_id: str
    authority: Authority
    directory: Directory
    contents: Contents
    strategy: Strategy
    telling: Telling
    codec: Codec
    clock: Callable[[], float]
