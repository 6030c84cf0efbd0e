"""The synchronous and the asynchronous methods of a checkpointer, each in the other's clothes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

FAMILIES = ("sync", "async")


class SyncFamily(BaseCheckpointSaver[Any]):
    """Its asynchronous methods call the synchronous ones of another checkpointer."""

    def __init__(self, saver: Any) -> None:
        super().__init__()
        self.saver = saver

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        return self.saver.get_tuple(config)

    async def alist(self, config: Any, **wanted: Any) -> AsyncIterator[CheckpointTuple]:
        for one in self.saver.list(config, **wanted):
            yield one

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return self.saver.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.saver.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        self.saver.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.saver.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.saver.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self.saver.prune(thread_ids, strategy=strategy)

    async def aget_delta_channel_history(
        self, *, config: Any, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.saver.get_delta_channel_history(
            config=config, channels=channels
        )
        return found


class AsyncFamily:
    """Its synchronous methods call the asynchronous ones of another checkpointer."""

    def __init__(self, saver: Any) -> None:
        self.saver = saver
        self._runner = asyncio.Runner()

    def close(self) -> None:
        """Close the event loop."""
        self._runner.close()

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        return self._runner.run(self.saver.aget_tuple(config))

    def list(self, config: Any, **wanted: Any) -> Iterator[CheckpointTuple]:
        async def collect() -> list[CheckpointTuple]:
            return [one async for one in self.saver.alist(config, **wanted)]

        return iter(self._runner.run(collect()))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.saver, f"a{name}")
        return lambda *args, **named: self._runner.run(method(*args, **named))
