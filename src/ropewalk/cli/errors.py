"""The error messages of commands, and the exit codes, which are a contract."""

from __future__ import annotations

import errno
import json
from typing import Any

from ropewalk import errors
from ropewalk.cli.output import plain
from ropewalk.cli.views import View

FOUND = 1
"""The command succeeded and found something: problems, or requested differences."""
USAGE = 2
LEFT_OUT = 11
"""The command succeeded, but had to leave something out."""
UNEXPECTED = 70
INTERRUPTED = 130
BROKEN_PIPE = 141

_SHOWN = 20
_LONGEST = 60

EXIT_CODES: dict[type[errors.RopewalkError], int] = {
    errors.InvalidInput: 3,
    errors.NotFound: 4,
    errors.Conflict: 5,
    errors.Corrupt: 6,
    errors.Unavailable: 7,
    errors.Full: 8,
    errors.NotAllowed: 9,
    errors.NotSaved: 10,
}
"""One for each second level of the error tree."""

_SYSTEM = {
    errno.ENOENT: errors.NotFound,
    errno.ENOTDIR: errors.NotFound,
    errno.EEXIST: errors.Conflict,
    errno.EISDIR: errors.InvalidInput,
    errno.ENAMETOOLONG: errors.InvalidInput,
    errno.ENOSPC: errors.Full,
    errno.EDQUOT: errors.Full,
    errno.EFBIG: errors.Full,
    errno.EACCES: errors.NotAllowed,
    errno.EPERM: errors.NotAllowed,
    errno.EROFS: errors.NotAllowed,
}

_HINTS: dict[type[errors.RopewalkError], str] = {
    errors.MergeConflict: "choose a side with --strategy ours or theirs, or a merger for a path "
    "with --merger PATH=NAME",
    errors.DamagedObject: "`ropewalk check --read-data` says what is damaged",
    errors.MissingObjects: "`ropewalk check` says what is missing",
    errors.Full: "make room on the disk, or `ropewalk gc --dry-run` says what could be freed",
    errors.Unavailable: "try again, or look whether another program keeps the store busy",
}


class Usage(errors.InvalidInput):
    """A usage error; ends with the exit code for wrong usage."""

    code = "usage"


class SeveralTimelines(Usage):
    """No timeline was named, and the store has more than one."""


def as_ropewalk(error: Exception) -> errors.RopewalkError | None:
    """Convert an error to one of Ropewalk's; None if it is a bug."""
    if isinstance(error, errors.RopewalkError):
        return error
    if isinstance(error, OSError):
        kind = _SYSTEM.get(error.errno or 0, errors.Unavailable)
        what = f"{error.filename!s:.200}: " if error.filename else ""
        return kind(f"{what}{error.strerror or error}")
    return None


def exit_code(error: errors.RopewalkError) -> int:
    """The exit code for an error."""
    if isinstance(error, Usage):
        return USAGE
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), UNEXPECTED)


def hint(error: errors.RopewalkError) -> str:
    """What to do about it; empty if the message already says so."""
    told = getattr(error, "hint", None)
    if isinstance(told, str):
        return told
    return next((text for kind, text in _HINTS.items() if isinstance(error, kind)), "")


def details(error: errors.RopewalkError, view: View) -> list[str]:
    """Further lines about it, beyond one sentence."""
    if not isinstance(error, errors.MergeConflict):
        return []
    told = record(error, view)["conflicts"][:_SHOWN]
    return [
        f"{one['path']}: it was {_short(one['base'])}, ours is {_short(one['ours'])}, "
        f"theirs is {_short(one['theirs'])}"
        for one in told
    ]


def record(error: errors.RopewalkError, view: View) -> dict[str, Any]:
    """An error as a JSON object."""
    told: dict[str, Any] = {
        "error": error.code,
        "message": str(error),
        "hint": hint(error),
        "exit_code": exit_code(error),
    }
    if isinstance(error, errors.MergeConflict):
        told["conflicts"] = [
            {
                "path": view.spell(one.path),
                "base": plain(view.part(one.path, one.base)),
                "ours": plain(view.part(one.path, one.ours)),
                "theirs": plain(view.part(one.path, one.theirs)),
            }
            for one in error.conflicts
            if not view.hides(one.path)
        ]
    return told


def _short(value: Any) -> str:
    if value == {"$absent": True}:
        return "not there"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def with_hint(error: errors.RopewalkError, text: str) -> errors.RopewalkError:
    """The error message with its hint."""
    error.hint = text  # type: ignore[attr-defined]
    return error
