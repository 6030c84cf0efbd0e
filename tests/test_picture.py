"""The picture of README shows what a real timeline holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_picture_is_what_a_real_timeline_looks_like(tmp_path: Path) -> None:
    made = tmp_path / "timeline.svg"

    subprocess.run([sys.executable, ROOT / "tools/picture.py", made], check=True)

    shown = (ROOT / "docs/timeline.svg").read_text(encoding="utf-8")
    assert made.read_text(encoding="utf-8") == shown, "python tools/picture.py docs/timeline.svg"
