"""A client: what the reads and writes of one `CoherenceCore` have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.codec import Codec
from holdfast.coherence._authorities._authority import Authority
from holdfast.coherence._content import Contents
from holdfast.coherence._protocol import Directory
from holdfast.coherence._strategies import Strategy
from holdfast.coherence._telling import Telling


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
