"""The checkpoints of a framework, as lines of one file that is not synced."""

from __future__ import annotations

from bench._model import Place


class Lines:
    """Appends lines, and gives the newest."""

    def __init__(self, place: Place) -> None:
        self._file = place.folder / "checkpoints.jsonl"

    def add(self, line: str) -> None:
        """Append one."""
        with self._file.open("a") as lines:
            lines.write(line + "\n")

    def newest(self) -> str:
        """The last one; empty if there is none."""
        return self._file.read_text().splitlines()[-1] if self._file.exists() else ""
