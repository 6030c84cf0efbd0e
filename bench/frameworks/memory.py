"""Workflows of many large values in frameworks: what their sides share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bench._model import Engine, Place


class Workload(Engine):
    """A framework with a workflow, whose checkpoints one side keeps small, or not."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place

    @abstractmethod
    def prepare(self, size: Mapping[str, int]) -> None:
        """Make everything but the workflow's values."""

    @abstractmethod
    def run(self) -> list[str]:
        """Run the workflow, and return the hash of each run's end."""

    def close(self) -> None:
        """Close what is open."""

    def commit(self, value: Any) -> None:
        raise NotImplementedError("a workload is run")

    def read(self) -> Any:
        raise NotImplementedError("a workload is run")


def agentref_adapter(
    framework: str, large: Mapping[str, Any], small: Mapping[str, Any], backend: Any
) -> Any:
    """AgentRef's adapter of a framework for a state with these fields."""
    agentref = import_module("agentref")
    fields = {name: agentref.Externalized[one] for name, one in large.items()}
    fields |= {name: agentref.Inline[one] for name, one in small.items()}
    named = {"__annotations__": fields, "__module__": __name__}
    state = type("State", (agentref.AgentRefState,), named)
    module = import_module(f"agentref.adapters.{framework.lower()}")
    return getattr(module, f"{framework}Adapter")(state, backend=backend)


def agentref_files(place: Place) -> Any:
    """AgentRef's store in the folder of a side."""
    return import_module("agentref.storage").FilesystemCAS(str(place.folder))


def our_state(large: Mapping[str, Any], small: Mapping[str, Any]) -> Any:
    """Our state with these fields."""
    from ropewalk import AgentState, Externalized, Inline

    fields: dict[str, Any] = {name: Externalized[one] for name, one in large.items()}
    fields |= {name: Inline[one] for name, one in small.items()}
    return type("State", (AgentState,), {"__annotations__": fields})


def our_store(place: Place) -> Any:
    """Our embedded store in the folder of a side."""
    import ropewalk

    return ropewalk.open(str(place.folder / "agent.ropewalk"))
