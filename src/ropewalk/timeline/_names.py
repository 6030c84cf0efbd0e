"""Names of agents: any text that is no path upwards."""

from __future__ import annotations

import re

from ropewalk.errors import InvalidName

_SEPARATORS = re.compile(r"[/\\]")


def check_agent(name: str) -> str:
    """The name, unless it would lead elsewhere if somebody took it for a path.

    Raises `InvalidName`. A store would keep such a name apart, but exports, logs and
    other programs may not be so careful.
    """
    parts = _SEPARATORS.split(name) if isinstance(name, str) else []
    if len(parts) > 1 and ("" in (parts[0], parts[-1]) or {".", ".."} & set(parts)):
        raise InvalidName(
            f"{name!r:.80} looks like a path; the name of an agent is none. Slashes may stand "
            "between parts, as in 'team/agent'."
        )
    return name
