"""Who asks for an item, and which artifact it is: the two conventions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.store.base import InvalidNamespaceError

from ropewalk.adapters.langgraph._coherent_names import (
    Scope,
    artifact_name,
    scope_prefix,
    split_artifact,
)
from ropewalk.adapters.langgraph.store.operations import known_prefix
from ropewalk.errors import InvalidInput

NOBODY: Final = "nobody"
"""The agent of a call that does not say whose it is."""


class Place(NamedTuple):
    """An artifact, as one agent sees it."""

    agent: str | None
    """None: the one that runs, whoever that is."""
    artifact: str


class Range(NamedTuple):
    """The artifacts that an agent searches: all whose names begin so."""

    agent: str
    prefix: str


class Convention(ABC):
    """How namespaces say who asks for what."""

    names_nodes: bool = False
    """Whether a node is an agent where nobody says which one runs."""

    @abstractmethod
    def place(self, namespace: Scope, key: str) -> Place:
        """Which artifact an item is, and who asks for it."""

    @abstractmethod
    def range(self, prefix: Scope) -> Range:
        """Which artifacts a search looks at, and who asks."""

    @abstractmethod
    def shown(self, asked: Scope, artifact: str, writer: str) -> tuple[Scope, str]:
        """The namespace and key of an artifact in the answer to who asked for a prefix."""

    @abstractmethod
    def named(self, agent: str, artifact: str) -> tuple[Scope, str]:
        """The namespace and key by which an agent asks for an artifact."""

    @abstractmethod
    def needs_writer(self, asked: Scope) -> bool:
        """Whether the answer to who asked depends on who wrote an artifact."""

    @abstractmethod
    def home(self, scope: Scope) -> Scope:
        """Where another store keeps the artifacts of a scope."""

    @abstractmethod
    def scope(self, namespace: Scope) -> Scope:
        """The scope of a namespace, of ours or of another store."""

    def asked(self, conditions: Iterable[Any]) -> Scope:
        """What all namespaces begin with that meet conditions, as far as that is known."""
        return known_prefix(conditions)


class ByNamespace(Convention):
    """The first label of a namespace is the agent, the others are the scope."""

    def __init__(self, root: str) -> None:
        self._root = root

    def place(self, namespace: Scope, key: str) -> Place:
        if not namespace:
            raise InvalidNamespaceError(
                "the first label of a namespace is the agent, and here is none. Use "
                "(agent, ...), or identity='config'."
            )
        return Place(namespace[0], artifact_name(namespace[1:], key))

    def range(self, prefix: Scope) -> Range:
        agent = prefix[0] if prefix else NOBODY
        return Range(agent, scope_prefix(prefix[1:]))

    def shown(self, asked: Scope, artifact: str, writer: str) -> tuple[Scope, str]:
        # Who asks finds it under their own name. If nobody says who asks, it stands under
        # the name of who wrote it last.
        scope, key = split_artifact(artifact)
        return (asked[0] if asked else writer, *scope), key

    def named(self, agent: str, artifact: str) -> tuple[Scope, str]:
        return self.shown((agent,), artifact, agent)

    def needs_writer(self, asked: Scope) -> bool:
        return not asked

    def home(self, scope: Scope) -> Scope:
        # The agents are no part of it, and a scope may be empty, but a namespace may not.
        return (self._root, *scope)

    def scope(self, namespace: Scope) -> Scope:
        return namespace[1:]


class ByConfig(Convention):
    """The agent comes from the run's config; namespaces are what they are."""

    names_nodes = True

    def place(self, namespace: Scope, key: str) -> Place:
        return Place(None, artifact_name(namespace, key))

    def range(self, prefix: Scope) -> Range:
        return Range(running_agent(), scope_prefix(prefix))

    def shown(self, asked: Scope, artifact: str, writer: str) -> tuple[Scope, str]:
        return split_artifact(artifact)

    def named(self, agent: str, artifact: str) -> tuple[Scope, str]:
        return split_artifact(artifact)

    def needs_writer(self, asked: Scope) -> bool:
        return False

    def home(self, scope: Scope) -> Scope:
        return scope

    def scope(self, namespace: Scope) -> Scope:
        return namespace


def convention(identity: Any, root: str) -> Convention:
    """The convention that a store was asked for."""
    if identity == "namespace":
        return ByNamespace(root)
    if identity == "config":
        return ByConfig()
    raise InvalidInput(f"identity is 'namespace' or 'config', not {identity!r:.80}")


def running_agent() -> str:
    """Which agent runs, as the config of the running graph says; `NOBODY` outside of a graph.

    It is `agent` or `agent_name` of the config's `configurable`, else the name of the agent
    that `create_agent` made, else the name of the node.
    """
    config = var_child_runnable_config.get()
    if not config:
        return NOBODY
    metadata = config.get("metadata") or {}
    agent = named_agent(config) or metadata.get("langgraph_node")
    return str(agent) if agent else NOBODY


def named_agent(config: Mapping[str, Any]) -> Any:
    """The agent that a config names, if it names one."""
    configurable, metadata = config.get("configurable") or {}, config.get("metadata") or {}
    return (
        configurable.get("agent") or configurable.get("agent_name") or metadata.get("lc_agent_name")
    )
