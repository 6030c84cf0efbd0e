"""Search by similarity: texts are embedded when an item is put, and compared exactly.

The vectors of an item are stored beside it, so nothing is embedded twice, in this process or
another. Searched vectors are loaded into this process, one matrix per namespace that was searched,
which is updated by the diff of two roots. A matrix is a cache and can be rebuilt.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langgraph.store.base import IndexConfig
from langgraph.store.base.embed import ensure_embeddings, get_text_at_path, tokenize_path

from ropewalk.adapters.langgraph.store.items import VECTORS, Name, beginning, to_name
from ropewalk.errors import InvalidInput
from ropewalk.store.forking import freed_after_fork

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ropewalk.adapters.langgraph.store.snapshot import Snapshot

_MOST_BYTES: Final = 512 << 20
"""The maximum size of all matrices; the least recently used one is evicted first."""

_WHOLE: Final = "$"
_FLOAT: Final = "<f4"


class Indexing:
    """How texts are extracted from values, and embedded."""

    def __init__(self, config: IndexConfig) -> None:
        _numpy()  # Raised now, not at the first search.
        if not isinstance(config, Mapping):
            raise InvalidInput(f"index is an IndexConfig, a dict, not {config!r:.80}")
        self.embeddings = ensure_embeddings(config.get("embed"))
        self.dims = config.get("dims")
        if self.dims is not None and (type(self.dims) is not int or self.dims < 1):
            raise InvalidInput(f"dims is a whole number from 1 on, not {self.dims!r:.80}")
        self.fields = _checked(config.get("fields") or [_WHOLE])

    def texts(self, value: dict[str, Any], index: Any) -> dict[str, str]:
        """The texts of a value to embed, by path."""
        if index is False:
            return {}
        found: dict[str, str] = {}
        plain = _plain(value)
        for path in self.fields if index is None else _checked(index):
            texts = _texts_at(plain, path)
            for number, text in enumerate(texts):
                found[path if len(texts) == 1 else f"{path}.{number}"] = text
        return found

    def rows(self, texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> dict[str, bytes]:
        """Vectors in stored form, by text; raises `InvalidInput` if they are malformed."""
        if len(vectors) != len(texts):
            raise InvalidInput(f"{len(texts)} texts were embedded, and {len(vectors)} vectors came")
        return {text: self.row(one) for text, one in zip(texts, vectors, strict=True)}

    def row(self, vector: Sequence[float]) -> bytes:
        """One vector in stored form."""
        np = _numpy()
        made = np.asarray(vector, dtype=_FLOAT)
        if made.ndim != 1 or (self.dims is not None and made.size != self.dims):
            raise InvalidInput(
                f"an embedding has {made.shape} numbers, and the index has dims={self.dims}"
            )
        if not np.isfinite(made).all():
            raise InvalidInput("an embedding holds a number that is not finite")
        return bytes(made.tobytes())


class Ranked(NamedTuple):
    """An item with vectors, and the score of the nearest of them."""

    name: Name
    score: float


class Partitions:
    """The cached matrices, one for each namespace that was searched."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most_bytes
        self._lock = freed_after_fork(threading.Lock())
        self._known: OrderedDict[tuple[tuple[str, ...], int], _Partition] = OrderedDict()

    def ranked(self, snapshot: Snapshot, prefix: tuple[str, ...], query: bytes) -> _Ranking:
        """The items below a prefix that have vectors, most similar first."""
        key = prefix, len(query)
        with self._lock:
            partition = self._known.get(key)
            if partition is None or not partition.follow(snapshot):
                partition = _Partition(prefix, len(query))
                partition.fill(snapshot)
                self._known[key] = partition
            self._known.move_to_end(key)
            self._make_room()
            return partition.rank(query)

    def _make_room(self) -> None:
        held = sum(one.size for one in self._known.values())
        while held > self._most and len(self._known) > 1:
            _, dropped = self._known.popitem(last=False)
            held -= dropped.size


class _Ranking:
    """Names by score, sorted lazily."""

    def __init__(self, names: list[Name], scores: NDArray[Any]) -> None:
        self._names, self._scores = names, scores

    @property
    def names(self) -> set[Name]:
        """All names with vectors."""
        return set(self._names)

    def __iter__(self) -> Iterator[Ranked]:
        np = _numpy()
        order = np.argsort(-self._scores, kind="stable").tolist()
        scores = self._scores.tolist()
        group: list[Ranked] = []
        for at in order:
            if group and group[0].score != scores[at]:
                yield from sorted(group)
                group = []
            group.append(Ranked(self._names[at], scores[at]))
        yield from sorted(group)


class _Partition:
    """The vectors of the items below a prefix, of one length, at one root."""

    def __init__(self, prefix: tuple[str, ...], row_bytes: int) -> None:
        np = _numpy()
        self._text = beginning(VECTORS, prefix)
        self._row_bytes = row_bytes
        self._snapshot: Snapshot | None = None
        self._rows = np.empty((0, row_bytes // 4), dtype=_FLOAT)
        """Each of length 1, or 0; there may be more than are in use."""
        self._owners = np.empty(0, dtype=np.int64)
        """Whose each row is, as a position in the names; -1 if it is nobody's any more."""
        self._used = self._dropped = 0
        self._names: list[Name | None] = []
        self._places: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return int(self._rows.nbytes)

    def fill(self, snapshot: Snapshot) -> None:
        """Read all vectors."""
        for key, stored in snapshot.under(self._text):
            self._add(key, stored)
        self._snapshot = snapshot

    def follow(self, snapshot: Snapshot) -> bool:
        """Move to another root; False if rebuilding is cheaper."""
        assert self._snapshot is not None
        if self._snapshot.root == snapshot.root:
            return True
        differing = self._snapshot.differing(snapshot)
        if differing is None or self._dropped > self._used // 2 + 64:
            return False
        changed = [key for key in differing if key.startswith(self._text)]
        for key in changed:
            self._drop(key)
        for key, stored in snapshot.entries(changed).items():
            self._add(key, stored)
        self._snapshot = snapshot
        return True

    def rank(self, query: bytes) -> _Ranking:
        """The similarity of each item to a query: that of its nearest vector."""
        np = _numpy()
        wanted = _unit(np.frombuffer(query, dtype=_FLOAT)[None])[0]
        scores = self._rows[: self._used] @ wanted
        owners = self._owners[: self._used]
        best = np.full(len(self._names), -2.0, dtype=np.float32)
        living = owners >= 0
        np.maximum.at(best, owners[living], scores[living])
        chosen = np.flatnonzero(best > -2.0)
        names = [name for at in chosen.tolist() if (name := self._names[at]) is not None]
        return _Ranking(names, np.clip(best[chosen].astype(np.float64), -1.0, 1.0))

    def _add(self, key: str, stored: Mapping[str, Any]) -> None:
        np = _numpy()
        rows, count = stored["rows"], len(stored["paths"])
        if len(rows) != count * self._row_bytes:
            return  # From another model: the item has no vectors for this query.
        made = _unit(np.frombuffer(rows, dtype=_FLOAT).reshape(count, -1))
        self._reserve(count)
        place = self._places[key] = len(self._names)
        self._names.append(to_name(key))
        self._rows[self._used : self._used + count] = made
        self._owners[self._used : self._used + count] = place
        self._used += count

    def _reserve(self, more: int) -> None:
        np = _numpy()
        if self._used + more <= len(self._rows):
            return
        room = max(2 * len(self._rows), self._used + more, 64)
        rows = np.empty((room, self._row_bytes // 4), dtype=_FLOAT)
        rows[: self._used] = self._rows[: self._used]
        owners = np.full(room, -1, dtype=np.int64)
        owners[: self._used] = self._owners[: self._used]
        self._rows, self._owners = rows, owners

    def _drop(self, key: str) -> None:
        place = self._places.pop(key, None)
        if place is None:
            return
        np = _numpy()
        dropped = np.flatnonzero(self._owners[: self._used] == place)
        self._owners[dropped] = -1
        self._dropped += len(dropped)
        self._names[place] = None


def _unit(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows scaled to length 1; a zero vector is similar to nothing."""
    np = _numpy()
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    lengths[lengths == 0] = 1.0
    unit: NDArray[Any] = (rows / lengths).astype(_FLOAT)
    return unit


def _checked(paths: Any) -> list[str]:
    if not isinstance(paths, list | tuple) or not all(isinstance(one, str) for one in paths):
        raise InvalidInput(f"fields to embed are a list of paths, False or None, not {paths!r:.80}")
    return list(paths)


def _texts_at(plain: Any, path: str) -> list[str]:
    if path in ("", _WHOLE):
        return [json.dumps(plain, sort_keys=True, ensure_ascii=False)]
    return list(get_text_at_path(plain, tokenize_path(path)))


def _plain(value: Any) -> Any:
    """A value in the form of JSON, so that every value has a text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ImportError(
            "searching by meaning needs numpy: pip install 'ropewalk[langgraph]'"
        ) from None
    return numpy


def distinct(texts: Iterable[str]) -> list[str]:
    """The distinct texts in their first order."""
    return list(dict.fromkeys(texts))
