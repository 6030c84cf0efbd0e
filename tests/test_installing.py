"""What messages and pages tell people to install, held against pyproject.toml and the Makefile.

Ropewalk is not on the package index. So a page, whose reader may have nothing yet, installs from
a copy of the repository: `pip install '.[cli]'`. A message comes from a Ropewalk that is installed
already; pip takes that one and only adds what is missing: `pip install 'ropewalk[cli]'`. That this
is so, `make package` tries.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.servers import SERVERS

ROOT = Path(__file__).parents[1]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = DECLARED["optional-dependencies"]
FOR_WORK = {"all", "dev", "docs", "fuzz", "package", "test"}
"""Extras that bring no feature of their own."""
FEATURES = {name for name in EXTRAS if name not in FOR_WORK and not name.endswith("-test")}

PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "bench").glob("*.md"),
    *(ROOT / "examples").rglob("*.py"),
]
MESSAGES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
COMMAND = re.compile(r"""pip install (?:-\S+ )*(?:'([^'\n]+)'|"([^"\n]+)"|([^\s'"`,;)]+))""")
REQUIREMENT = re.compile(r"(\.|[\w.-]*\w)(?:\[([\w{},-]+)\])?[\w.<>=,~!]*")


def told(files: list[Path]) -> Iterator[tuple[str, str, set[str]]]:
    """Where something is installed, what, and with which extras."""
    for file in files:
        for found in COMMAND.finditer(file.read_text(encoding="utf-8")):
            what = next(filter(None, found.groups()))
            parts = REQUIREMENT.fullmatch(what)
            assert parts is not None, f"{file}: {what}"
            extras = set(parts[2].split(",")) if parts[2] else set()
            yield str(file.relative_to(ROOT)), parts[1], extras


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", one)[0] for one in requirements}


OTHERS = {name for requirements in EXTRAS.values() for name in names_of(requirements)}


def test_a_page_installs_from_a_copy_with_extras_that_exist() -> None:
    found = [(where, what, extras) for where, what, extras in told(PAGES) if what != "ropewalk"]

    assert len(found) >= 12
    for where, what, extras in found:
        assert extras <= FEATURES | FOR_WORK, where
        assert what == "." or what in OTHERS, f"{where} installs {what}"
    assert [where for where, what, _ in told(PAGES) if what == "ropewalk" and ".md" in where] == []


def test_a_message_adds_extras_that_exist_to_what_is_installed() -> None:
    found = [(where, what, extras) for where, what, extras in told(MESSAGES) if what != "."]

    assert {extra for _, _, extras in found for extra in extras} >= FEATURES - {"otel", "langsmith"}
    for where, what, extras in found:
        # One message is made for the extra of an exporter: it is read below.
        assert extras - {"{extra}"} <= FEATURES, where
        assert what == "ropewalk" or what in OTHERS, f"{where} installs {what}"


def test_an_extra_that_a_page_names_exists() -> None:
    for page in PAGES:
        for name in re.findall(r"\bextras? `([\w-]+)`", page.read_text(encoding="utf-8")):
            assert name in EXTRAS, page


def test_the_extra_for_all_has_what_can_be_installed_together() -> None:
    apart = {"agentflow", "crewai", "pyagenity"}  # Their pins exclude other frameworks.
    parts = [re.fullmatch(r"ropewalk\[(.*)\]", one) for one in EXTRAS["all"]]

    assert {name for part in parts if part for name in part[1].split(",")} == FEATURES - apart


def test_a_target_of_make_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (page, name)
        for page in [*PAGES, *MESSAGES]
        for name in re.findall(r"(?:`|\$ )make ([a-z]+)", page.read_text(encoding="utf-8"))
    }

    assert len(named) > 10
    assert [(page, name) for page, name in named if name not in targets] == []


def test_a_debian_package_that_a_page_names_is_one_that_is_installed() -> None:
    known = {server.package for server in SERVERS}
    for page in PAGES:
        for names in re.findall(
            r"apt(?:-get)? install ([\w -]+)", page.read_text(encoding="utf-8")
        ):
            assert set(names.split()) <= known, page


MISSING = [
    ("cli", "typer", "from ropewalk.cli import main; main()"),
    ("postgres", "psycopg", "import ropewalk; ropewalk.open('postgresql://host/app')"),
    ("postgres", "psycopg", "from ropewalk.coherence import PostgresBus as B; B('postgresql://h')"),
    ("redis", "redis", "import ropewalk; ropewalk.open('redis://host')"),
    ("redis", "redis", "from ropewalk.coherence import RedisBus; RedisBus('redis://host')"),
    ("s3", "obstore", "import ropewalk; ropewalk.open('s3://bucket')"),
    ("nats", "nats", "from ropewalk.coherence import NatsBus; NatsBus('nats://host')"),
    ("otel", "opentelemetry", "import ropewalk.coherence as c; c.CoherenceCore(telemetry='%s')"),
    ("langsmith", "langsmith", "import ropewalk.coherence as c; c.CoherenceCore(telemetry='%s')"),
    ("tokens", "genai_prices", "import ropewalk.coherence as c; c.prices_of('gpt-5')"),
    ("langgraph", "langgraph", "from ropewalk.adapters.langgraph import RopewalkSaver"),
    ("langgraph", "langgraph", "from ropewalk.testing import BaseStoreContract"),
    ("langchain", "langchain_core", "import ropewalk.adapters.langchain"),
    ("llamaindex", "workflows", "from ropewalk.adapters.llamaindex import RopewalkRuntime"),
    ("autogen", "autogen_core", "from ropewalk.adapters.autogen import CoherenceAdapter"),
    (
        "agent-framework",
        "agent_framework",
        "from ropewalk.adapters.agent_framework import RopewalkCheckpointStorage",
    ),
    ("deepagents", "deepagents", "from ropewalk.adapters.deepagents import RopewalkBackend"),
    ("crewai", "crewai", "from ropewalk.adapters.crewai import CoherenceAdapter"),
    ("agentflow", "agentflow", "import ropewalk.adapters.agentflow"),
    ("pyagenity", "pyagenity", "import ropewalk.adapters.pyagenity"),
]


@pytest.mark.parametrize(("extra", "module", "use"), MISSING, ids=[one[2] for one in MISSING])
def test_who_lacks_a_package_is_told_its_extra(extra: str, module: str, use: str) -> None:
    use = use % module if "%s" in use else use
    program = f"import sys; sys.modules[{module!r}] = None\n{use}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode != 0
    assert f"pip install 'ropewalk[{extra}]'" in done.stderr.splitlines()[-1]


def test_every_extra_is_told_where_its_package_is_missing() -> None:
    assert {extra for extra, _, _ in MISSING} == FEATURES
