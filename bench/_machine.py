"""What the figures were taken on: no names of hosts, users or paths."""

from __future__ import annotations

import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def sync_milliseconds(folder: Path, writes: int = 50) -> float:
    """How long the disk of a folder takes to write and sync 4 KB."""
    took = []
    with TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(writes):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return median(took) * 1e3


def describe(folder: Path) -> dict[str, str]:
    """Date, interpreter, processor, kernel, the disk of a folder, and how busy it all is."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "cpu": f"{_cpu_model()}, {os.cpu_count()} cores",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": f"a write of 4 KB with its sync takes {sync_milliseconds(folder):.2f} ms",
        "load before the run": f"{os.getloadavg()[0]:.1f}",
    }
