"""The mapping between items of agents and artifacts.

The name of an artifact is a path: the labels of its scope and its key, separated by slashes.
Slashes, percent signs and control characters inside a label or key are escaped as `%XX`, which
keeps names unique: `("x:y",), "z"` is `x:y/z`, and `("x",), "y:z"` is `x/y:z`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.store.base import InvalidNamespaceError

from ropewalk.errors import InvalidInput

Scope: TypeAlias = tuple[str, ...]

NOBODY: Final = "nobody"
"""The agent of a call that does not name one."""

_EMPTY: Final = "%"
"""An empty key. Every other percent sign is followed by two digits."""

_SPELLED: Final = re.compile(r"[%/\x00-\x1f\x7f]")
_ESCAPE: Final = re.compile(r"%([0-9A-F]{2})")


class Place(NamedTuple):
    """An artifact, as one agent sees it."""

    agent: str | None
    """None for the running agent."""
    artifact: str


class Range(NamedTuple):
    """The artifacts that an agent searches: those whose names have a prefix."""

    agent: str
    prefix: str


class Convention(ABC):
    """How namespaces encode the agent and the scope."""

    names_nodes: bool = False
    """Whether a node counts as an agent if none is named."""

    @abstractmethod
    def place(self, namespace: Scope, key: str) -> Place:
        """The artifact of an item, and the requesting agent."""

    @abstractmethod
    def range(self, prefix: Scope) -> Range:
        """The artifacts of a search, and the requesting agent."""

    @abstractmethod
    def shown(self, asked: Scope, artifact: str, writer: str) -> tuple[Scope, str]:
        """The namespace and key of an artifact in the result of a search."""

    @abstractmethod
    def named(self, agent: str, artifact: str) -> tuple[Scope, str]:
        """The namespace and key of an artifact for an agent."""

    @abstractmethod
    def scope(self, namespace: Scope) -> Scope:
        """The scope of a namespace."""


class _ByNamespace(Convention):
    """The first label of a namespace is the agent, the others are the scope."""

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
        # Results are in the searching agent's namespace. Without an agent, an item is listed under
        # the one that wrote it last.
        scope, key = split_artifact(artifact)
        return (asked[0] if asked else writer, *scope), key

    def named(self, agent: str, artifact: str) -> tuple[Scope, str]:
        return self.shown((agent,), artifact, agent)

    def scope(self, namespace: Scope) -> Scope:
        return namespace[1:]


class _ByConfig(Convention):
    """The agent comes from the run's config; namespaces are unchanged."""

    names_nodes = True

    def place(self, namespace: Scope, key: str) -> Place:
        return Place(None, artifact_name(namespace, key))

    def range(self, prefix: Scope) -> Range:
        return Range(running_agent(), scope_prefix(prefix))

    def shown(self, asked: Scope, artifact: str, writer: str) -> tuple[Scope, str]:
        return split_artifact(artifact)

    def named(self, agent: str, artifact: str) -> tuple[Scope, str]:
        return split_artifact(artifact)

    def scope(self, namespace: Scope) -> Scope:
        return namespace


def convention(identity: Any) -> Convention:
    """The convention that a store was configured with."""
    if identity == "namespace":
        return _ByNamespace()
    if identity == "config":
        return _ByConfig()
    raise InvalidInput(f"identity is 'namespace' or 'config', not {identity!r:.80}")


def running_agent() -> str:
    """The running agent, by the config of the running graph; `NOBODY` outside of a graph.

    It is `agent` or `agent_name` of the config's `configurable`, else the name of the agent that
    `create_agent` made, else the name of the node.
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


def artifact_name(scope: Scope, key: str) -> str:
    """The name of the artifact with this key in this scope."""
    name = scope_prefix(scope) + _part(key)
    # Engines refuse names that mean a folder.
    return name.replace(".", "%2E") if name in (".", "..") else name


def scope_prefix(scope: Scope) -> str:
    """The prefix of the names of all artifacts in a scope and below it."""
    return "".join([f"{_part(label)}/" for label in scope])


def split_artifact(name: str) -> tuple[Scope, str]:
    """The scope and key of a name."""
    *scope, key = name.split("/")
    return tuple([_plain(label) for label in scope]), _plain(key)


def _part(text: str) -> str:
    if text.isidentifier():
        return text
    if not text:
        return _EMPTY
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"a namespace or key holds half a character, a lone surrogate: {text!r:.80}"
        ) from None
    return _SPELLED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _plain(part: str) -> str:
    if "%" not in part:
        return part
    if part == _EMPTY:
        return ""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), part)
