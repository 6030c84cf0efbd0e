"""The methods of `CoherenceCore` that are about an engine that cannot be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ropewalk.coherence._faces._agents import Agents

if TYPE_CHECKING:
    from ropewalk.coherence._outages._kept import KeptWrite, Reconciled


class Degraded(Agents):
    """Agents that go on while the engine cannot be reached."""

    @property
    def is_degraded(self) -> bool:
        """Whether the engine could not be reached, and has not answered since."""
        return self._degrading is not None and self._degrading.is_active

    @property
    def degradation_count(self) -> int:
        """How many reads and writes were answered without the engine."""
        return 0 if self._degrading is None else self._degrading.count

    def kept(self) -> list[KeptWrite]:
        """The writes that are not in the engine: they wait for it, or met a conflict there."""
        return [] if self._degrading is None else self._degrading.kept()

    def reconciled(self) -> list[Reconciled]:
        """What became of the writes that were kept, the last thousand of them."""
        return [] if self._degrading is None else self._degrading.reconciled()

    def discard(self, kept: KeptWrite) -> bool:
        """Forget a kept write, for example when its conflict is settled by another write."""
        return self._degrading is not None and self._degrading.discard(kept)
