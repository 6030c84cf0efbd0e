"""The values of a store in a bucket: cells, changed by conditional put, and parts.

A tag may be a hash of the bytes, and bytes may recur. Each value is therefore stored with a random
nonce, which identifies a put whose reply was lost, and makes tags unique.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ropewalk.errors import NotAllowed, RopewalkError, Unavailable
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.records.cells import KNOWN, PARTS, SPACES

if TYPE_CHECKING:
    from ropewalk.store.s3.bucket import Bucket, Got

PROBES: Final = "ropewalk/probe"

_NONCE: Final = 8
_OTHER_TAG: Final = '"00000000000000000000000000000000"'
_TRIES: Final = 3
_REMEMBERED: Final = 256
_LONGEST: Final = 120  # Some servers keep keys as files, whose names have a maximum length.


class BucketCells:
    """Values by key, in a bucket. Safe to share between threads."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = freed_after_fork(threading.Lock())
        self._tags: OrderedDict[str, tuple[bytes, str]] = OrderedDict()
        """Of each cell the value that was last seen, and its tag."""

    def get(self, key: str) -> bytes | None:
        """The value of a key."""
        with self._lock:
            known = self._tags.get(key)
        found = self._bucket.get(place_of(key), None if known is None else known[1])
        if found is None:
            with self._lock:
                self._tags.pop(key, None)
            return None
        if known is not None and found.e_tag == known[1]:
            return known[0]
        value = found.data[_NONCE:]
        self._remember(key, value, found.e_tag)
        return value

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of several keys, without missing ones."""
        found = self._bucket.each(self.get, keys)
        return {key: one for key, one in zip(keys, found, strict=True) if one is not None}

    def keys(self, prefix: str) -> list[str]:
        """The keys with a prefix, each once."""
        folder = "/".join(prefix.split("/")[:2])
        found = (key_of(place) for place, _ in self._bucket.listing(folder))
        return [key for key in found if key.startswith(prefix)]

    def swap(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """Compare and set; None stands for an absent key."""
        tag = None
        if expected is not None:
            tag = self._tag(key, expected)
            if tag is None:
                return False
        return self._put(key, tag, value)

    def _put(self, key: str, tag: str | None, value: bytes) -> bool:
        body = os.urandom(_NONCE) + value
        for left in reversed(range(_TRIES)):
            try:
                done = self._bucket.put_if(place_of(key), body, tag)
            except Unavailable:
                # It may have been written, or still be. The current value decides.
                found = self._look(key)
                if found is not None and found.data == body:
                    return True
                if (None if found is None else found.e_tag) != tag:
                    return False
                if left == 0:
                    raise
                time.sleep(0.05)
                continue
            if done is None:
                # It is also refused if it arrived twice, or if an earlier one thought lost arrived
                # first.
                found = self._look(key)
                return found is not None and found.data == body
            self._remember(key, value, done)
            return True
        raise AssertionError("the last try returns or raises")

    def _look(self, key: str) -> Got | None:
        """The current value, with its nonce."""
        found = self._bucket.get(place_of(key))
        if found is not None:
            self._remember(key, found.data[_NONCE:], found.e_tag)
        return found

    def _tag(self, key: str, expected: bytes) -> str | None:
        """The tag of a value, if it is still current as far as cached."""
        with self._lock:
            known = self._tags.get(key)
        if known is None or known[0] != expected:
            self.get(key)
            with self._lock:
                known = self._tags.get(key)
        return None if known is None or known[0] != expected else known[1]

    def _remember(self, key: str, value: bytes, tag: str) -> None:
        with self._lock:
            self._tags[key] = value, tag
            self._tags.move_to_end(key)
            if len(self._tags) > _REMEMBERED:
                self._tags.popitem(last=False)


class BucketParts:
    """Immutable values by key, in a bucket. Safe to share between threads."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of several keys, without missing ones."""
        found = self._bucket.each(lambda key: self._bucket.get(place_of(key)), keys)
        return {key: one.data for key, one in zip(keys, found, strict=True) if one is not None}

    def pieces(self, key: str, places: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Ranges of a value, by offset and length; None if it is absent."""
        return self._bucket.ranges(place_of(key), places)

    def keys(self, prefix: str) -> list[str]:
        """The keys with a prefix, each once."""
        return [key_of(place) for place, _ in self._bucket.listing(prefix.rstrip("/"))]

    def set_many(self, values: Mapping[str, bytes]) -> None:
        """Set several keys, in any order."""
        self._bucket.each(lambda one: self._bucket.put(place_of(one[0]), one[1]), values.items())

    def remove(self, keys: Sequence[str]) -> None:
        """Remove keys; missing ones are ignored."""
        self._bucket.delete([place_of(key) for key in keys])


def place_of(key: str) -> str:
    """The bucket key of a value.

    No key is a prefix folder of another, because some servers store keys as files and folders: the
    name of a space is one segment, and a long one is split into folders that end with a `+`.
    """
    for folder in (SPACES, KNOWN, PARTS):
        if key.startswith(folder):
            tenant, space, *part = key.removeprefix(folder).split("/")
            flat = f"{tenant}!{space}"
            cut = [flat[start : start + _LONGEST] for start in range(0, len(flat), _LONGEST)]
            return "/".join((folder + "+/".join(cut), *part))
    return key


def key_of(place: str) -> str:
    """The cell stored under a bucket key."""
    return place.replace("+/", "").replace("!", "/")


def probe(bucket: Bucket) -> None:
    """Raise `NotAllowed` if the server ignores conditions; leaves nothing behind."""
    key = f"{PROBES}/{os.urandom(8).hex()}"

    def put(text: bytes, tag: str | None) -> str | None:
        body = text + os.urandom(_NONCE)
        done = bucket.put_if(key, body, tag)
        found = bucket.get(key) if done is None else None  # It is refused if it arrived twice, too.
        return found.e_tag if found is not None and found.data == body else done

    ignored: str | None = None
    tag = put(b"first", None)
    if bucket.put_if(key, b"second" + os.urandom(_NONCE), None) is not None:
        ignored = "If-None-Match: a put that must only create has overwritten"
    elif bucket.put_if(key, b"third" + os.urandom(_NONCE), _OTHER_TAG) is not None:
        ignored = "If-Match: a put that names another version has overwritten"
    elif not tag or put(b"fourth", tag) is None:
        ignored = "that a put names the very version that is there, and refuses it"
    try:
        bucket.delete([key])
    except RopewalkError:
        if ignored is None:
            raise
    if ignored is not None:
        raise NotAllowed(
            f"{bucket.name}: the server ignores {ignored}. Writers would overwrite each other's "
            "commits. Take a server that keeps conditional puts."
        )
