"""Settings for every test: how much Hypothesis tries, and whether campaigns run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Verbosity, settings

from tests.postgres import pgbouncer, postgres, postgres_url
from tests.s3_server import s3_endpoint, s3_url
from tests.servers import nats_server, nats_url, redis_server, redis_url

__all__ = [
    "nats_server",
    "nats_url",
    "pgbouncer",
    "postgres",
    "postgres_url",
    "redis_server",
    "redis_url",
    "s3_endpoint",
    "s3_url",
]

SOAK = os.environ.get("ROPEWALK_SOAK", "") not in ("", "0")

# Machines are slow and noisy: no time limit, and no complaint about slow data.
_COMMON = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    verbosity=Verbosity.normal,
)
# The same examples on every run, so that a failure is the change's own.
settings.register_profile(
    "ci", _COMMON, derandomize=True, database=None, max_examples=200, stateful_step_count=50
)
settings.register_profile("soak", _COMMON, max_examples=2_000, stateful_step_count=100)
settings.load_profile("soak" if SOAK else "ci")


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one, for tests that need no real syncs."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="ropewalk-") as made:
        yield Path(made)


def pytest_report_header() -> str:
    """Say what is run, because workers do not report what they left out."""
    return "campaigns: run" if SOAK else "campaigns: left out, `make soak` runs them"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the campaigns out unless they were asked for."""
    if SOAK:
        return
    campaigns = [item for item in items if item.get_closest_marker("soak")]
    if campaigns:
        config.hook.pytest_deselected(items=campaigns)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
