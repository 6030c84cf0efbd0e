"""Going without what stands beside history, where a server does not give it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from ropewalk.errors import Full, RopewalkError, StoreClosed, Unavailable

R = TypeVar("R")

_log = logging.getLogger("ropewalk.store")


class Trying:
    """Makes steps that may fail. Whatever is wrong, nobody hears of it but the log."""

    def __init__(self, also: Callable[[], tuple[type[Exception], ...]] = tuple) -> None:
        self._also = also
        self.unusable = False
        """Whether it is of no use to try."""

    def tried(self, step: Callable[[], R], otherwise: R) -> R:
        """What a step gives, or `otherwise` if it cannot be made. Raises `StoreClosed`."""
        try:
            return step()
        except StoreClosed:
            raise
        except (Unavailable, Full) as error:
            _log.info("what stands beside history cannot be used now: %s", error)
        except Exception as error:
            if not isinstance(error, (RopewalkError, *self._also())):
                raise
            self.unusable = True
            _log.warning(
                "the search index and state cache are only in this process, because those of "
                "the server cannot be used: %s",
                error,
            )
        return otherwise
