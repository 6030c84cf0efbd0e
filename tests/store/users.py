"""Other users of the machine, for tests of what may not be written."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

from ropewalk.errors import RopewalkError

NOBODY = 65534


def as_nobody(call: Callable[[], object]) -> str:
    """What a process that may write nowhere gets: the name of an error, or nothing."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            call()
        except RopewalkError as error:
            os.write(theirs, type(error).__name__.encode())
        except BaseException as error:  # noqa: BLE001 - the test shows it
            os.write(theirs, f"unexpected {error!r}".encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours, encoding="utf-8") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said
