"""What the figures were taken on: no names of hosts, users or paths."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def describe() -> dict[str, str]:
    """Date, interpreter, processor and kernel."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "cpu": f"{_cpu_model()}, {os.cpu_count()} cores",
        "kernel": f"{platform.system()} {platform.release()}",
    }
