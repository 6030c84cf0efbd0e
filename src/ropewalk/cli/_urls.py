"""URLs, as they may be shown."""

from __future__ import annotations

import re

_SECRET = re.compile(r"(?i)((?:password|secret|token|key|refs)[^=&]*=)[^&]*")


def shown_url(url: str) -> str:
    """A path as it is, and a URL without its password."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "file":
        return url
    place, question, options = rest.partition("?")
    if "@" in options and "@" not in place:  # A password with a ? in it.
        place, question, options = "***@" + rest.rpartition("@")[2], "", ""
    # To the last @, because a password that is spelled wrongly may have one too.
    user, at, host = place.rpartition("@")
    if ":" in user:
        user = user.partition(":")[0] + ":***"
    kept = _SECRET.sub(r"\1***", options)
    return f"{scheme}://{user}{at}{host}{question}{kept}"
