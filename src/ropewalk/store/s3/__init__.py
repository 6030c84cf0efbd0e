"""The engine of buckets."""

from ropewalk.store.s3.store import S3Store

__all__ = ["S3Store"]
