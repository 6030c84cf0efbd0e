"""Power losses: a journal of file operations, and the folders that a crash may leave."""

from __future__ import annotations

from ropewalk.testing._crashes._journal import Journal, Mark, RecordingFilesystem, recording
from ropewalk.testing._crashes._replay import CrashState, crash_states

__all__ = ["CrashState", "Journal", "Mark", "RecordingFilesystem", "crash_states", "recording"]
