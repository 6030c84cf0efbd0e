"""Imports pyagenity before the tests do, and lets each test begin like a new process."""

from __future__ import annotations

import warnings

import pytest
from injectq import Inject, InjectQ

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # It warns while it is imported.
    from pyagenity.graph.utils import utils


@pytest.fixture(autouse=True)
def _no_checkpointer_is_remembered() -> None:
    """The engine keeps the first checkpointer that a process uses, for all its graphs."""
    InjectQ().activate()
    for function in vars(utils).values():
        for default in getattr(function, "__defaults__", None) or ():
            if type(default) is Inject:
                vars(default)["_injected_value"] = None
