"""The page about pyagenity in the documentation, and the example program."""

from __future__ import annotations

from tests.frameworks.examples import ExampleSuite


class TestExamples(ExampleSuite):
    page = "pyagenity.md"
