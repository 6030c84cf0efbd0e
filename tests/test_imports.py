"""`import ropewalk` stays light."""

from __future__ import annotations

import subprocess
import sys

import pytest

PUBLIC = [
    "ropewalk",
    "ropewalk.errors",
    "ropewalk.codec",
    "ropewalk.tree",
    "ropewalk.store",
    "ropewalk.history",
    "ropewalk.coherence",
]

FRAMEWORKS = {
    "agentflow",
    "agents",
    "autogen_agentchat",
    "autogen_core",
    "crewai",
    "deepagents",
    "langchain_core",
    "langgraph",
    "llama_index",
    "pyagenity",
}
DRIVERS = {
    "aiosqlite",
    "asyncpg",
    "boto3",
    "nats",
    "obstore",
    "psycopg",
    "psycopg_pool",
    "redis",
    "sqlite3",
}
COMMAND_LINE_AND_WEB = {
    "argparse",
    "click",
    "http",
    "httpx",
    "rich",
    "socket",
    "ssl",
    "starlette",
    "typer",
    "uvicorn",
}
ASYNCHRONOUS = {"anyio", "asyncio", "concurrent", "trio"}
TYPES_THAT_A_USER_MAY_BRING = {"msgspec", "numpy", "pydantic"}
FOR_TESTS = {"ropewalk.testing", "hypothesis", "pytest"}
SLOW_FALLBACKS = {"pyfastcdc.py"}

HEAVY = (
    FRAMEWORKS
    | DRIVERS
    | COMMAND_LINE_AND_WEB
    | ASYNCHRONOUS
    | TYPES_THAT_A_USER_MAY_BRING
    | FOR_TESTS
    | SLOW_FALLBACKS
)


def modules_loaded_by(statement: str) -> set[str]:
    """What a fresh interpreter has loaded after a statement that it had not before."""
    program = (
        "import sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print('\\n'.join(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", PUBLIC)
def test_importing_the_core_loads_nothing_heavy(module: str) -> None:
    loaded = modules_loaded_by(f"import {module}")

    assert module in loaded
    assert loaded & HEAVY == set()


def test_importing_the_package_loads_only_what_names_its_parts() -> None:
    # The command line cannot take care of interrupts before this is over.
    assert modules_loaded_by("import ropewalk") <= {"__future__", "ropewalk", "ropewalk._version"}
    assert "ropewalk.errors" in modules_loaded_by("import ropewalk; ropewalk.errors.NotFound")


def test_the_check_would_notice_a_heavy_module() -> None:
    loaded = modules_loaded_by("import ropewalk, asyncio, sqlite3")

    assert {"asyncio", "sqlite3"} <= loaded & HEAVY


def test_chunking_uses_the_compiled_code() -> None:
    loaded = modules_loaded_by("import pyfastcdc")

    assert "pyfastcdc.cy" in loaded


@pytest.mark.parametrize("name", ["Cache", "Codec", "History", "Move", "TreeWriter"])
def test_a_name_that_is_elsewhere_says_where(name: str) -> None:
    with pytest.raises(ImportError, match=f"{name} is in ropewalk") as caught:
        exec(f"from ropewalk import {name}", {})
    _, _, statement = str(caught.value).partition(": ")

    exec(statement, {})
