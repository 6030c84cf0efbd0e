"""Where things are in the folder of a `FileStore`."""

from __future__ import annotations

import re
from hashlib import sha256
from os import urandom
from pathlib import Path

from ropewalk.tree.objects import ObjectId

HEADER = "ropewalk.json"
OBJECTS = "objects"
SPACES = "spaces"
NEW = "new"

LOG = "log"
STATE = "state.json"
SPACE = "space.json"
LEASES = "leases.json"
SEGMENTS = "segments"

_LONGEST = 100
_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_PLAIN = re.compile(r"[a-z0-9_~-](?:[a-z0-9._~-]*[a-z0-9_~-])?")
# Names that Windows gives to devices.
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")


def temporary(root: Path) -> Path:
    """A new name for a file that gets its real one later."""
    return root / NEW / urandom(16).hex()


def object_path(objects: Path, id: ObjectId) -> Path:
    """The file of a shared object."""
    name = id.hex()
    return objects / name[:2] / name[2:]


def space_folder(spaces: Path, space: str) -> Path:
    """The folder of a space: one inside the other for the two parts of its name."""
    tenant, _, name = space.partition("/")
    return spaces / folder_name(tenant) / folder_name(name)


def plain_space(folder: Path) -> str | None:
    """The name of the space of a folder, if it can be told from that."""
    tenant, name = folder.parent.name, folder.name
    return None if "=" in tenant + name else f"{tenant}/{name}"


def folder_name(part: str) -> str:
    """A part of a name as the name of a folder that every file system tells apart.

    Most stay as they are. One that is long, has capitals, or begins or ends with a dot
    is cut and gets a hash behind `=`, which no part holds.
    """
    letters = _ESCAPE.sub("_", part)
    if len(part) <= _LONGEST and _PLAIN.fullmatch(letters) and not _DEVICES.fullmatch(part):
        return part
    shown = part[:_LONGEST].strip(".")
    return f"{shown}={sha256(part.encode()).hexdigest()[:32]}"
