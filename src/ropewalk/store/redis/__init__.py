"""The engine on a Redis or Valkey server."""

from ropewalk.store.redis.store import RedisStore

__all__ = ["RedisStore"]
