"""Keeps CrewAI to itself: nothing reaches the network or the home folder."""

from __future__ import annotations

import os
import socket
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

_DATA = tempfile.TemporaryDirectory(prefix="ropewalk-crewai-")
os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TESTING": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "HOME": _DATA.name,
    "OTEL_SDK_DISABLED": "true",
    "XDG_DATA_HOME": _DATA.name,
}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # What it warns of when it is imported is its own matter.
    import crewai  # noqa: F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let CrewAI use what it deprecates itself."""
    here = os.path.dirname(__file__)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai"))


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test during which anything asks for another machine."""
    asked: list[Any] = []
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: Any) -> None:
        if self.family is socket.AF_UNIX:
            return connect(self, address)
        asked.append(address)
        raise ConnectionRefusedError(f"a test asked for {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield
    assert asked == []
