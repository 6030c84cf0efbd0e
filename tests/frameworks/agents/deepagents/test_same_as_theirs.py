"""The same operations on our files and on those of the framework's own backends."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from deepagents.backends import FilesystemBackend, StoreBackend
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.memory import InMemoryStore

import ropewalk
from ropewalk.adapters.deepagents import RopewalkBackend

PATHS = ["/a.txt", "/a", "/a/b.py", "/src/a.txt", "/src/deep/b.py", "/.hidden/c.yml", "/pic.png"]
FOLDERS = ["/", "/a", "/src", "/src/", "/src/deep", "/no", "/a.txt", "", "  "]
GLOBS = ["*", "*.py", "**/*.txt", "/*.txt", "src/**", "{a,b}.*", "../x", "[a-b].txt", ".hidden/*"]
WORDS = ["", "a", "ab", "one", "one\n", "\n", "two", "\r\n", "é", "one two", "\u2028"]

words = st.sampled_from(WORDS)
texts = st.lists(words, max_size=12).map("".join)
paths = st.sampled_from(PATHS)
datas = st.one_of(texts.map(str.encode), st.sampled_from([b"\xff", b"\x89PNG\r\n\x1a\n", b""]))
numbers = st.sampled_from([-1, 0, 1, 2, 5, 2000])
uploads = st.lists(st.tuples(paths, datas), max_size=3, unique_by=lambda one: one[0])
operations = st.one_of(
    st.tuples(st.just("write"), paths, texts),
    st.tuples(st.just("write"), paths, texts),
    st.tuples(st.just("edit"), paths, words, words, st.booleans()),
    st.tuples(st.just("edit"), paths, words, words, st.booleans()),
    st.tuples(st.just("delete"), st.one_of(paths, st.sampled_from(["/src", "/src/", "/no"]))),
    st.tuples(
        st.just("upload_files"),
        st.lists(st.tuples(paths, datas), max_size=3, unique_by=lambda one: one[0]),
    ),
    st.tuples(st.just("read"), paths, numbers, numbers),
    st.tuples(st.just("ls"), st.sampled_from(FOLDERS)),
    st.tuples(st.just("glob"), st.sampled_from(GLOBS), st.sampled_from([None, *FOLDERS])),
    st.tuples(
        st.just("grep"),
        words,
        st.sampled_from([None, *FOLDERS]),
        st.sampled_from([None, "", *GLOBS]),
        st.sampled_from([None, 0, 1, 3]),
    ),
    st.tuples(st.just("download_files"), st.lists(paths, max_size=3)),
)


def call(backend: Any, operation: tuple[Any, ...]) -> Any:
    name, *arguments = operation
    if name == "grep":
        *arguments, most = arguments
        return backend.grep(*arguments, max_count=most)
    return getattr(backend, name)(*arguments)


def sized(backend: Any, result: Any) -> Any:
    """A result of theirs with the sizes of binary files in bytes, where it has them in base64."""
    for one in getattr(result, "entries", None) or getattr(result, "matches", None) or ():
        if "size" in one and not one["is_dir"]:
            (found,) = backend.download_files([one["path"]])
            one["size"] = len(found.content)
    return result


def without_times(result: Any) -> Any:
    """A result without the moments at which files were made and changed."""
    if isinstance(result, list):
        return [without_times(one) for one in result]
    if isinstance(result, dict):
        return {
            key: without_times(value)
            for key, value in result.items()
            if key not in ("created_at", "modified_at")
        }
    if hasattr(result, "__dataclass_fields__"):
        return (type(result), without_times(dict(vars(result))))
    return result


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_results_equal_those_of_a_store_backend(engine: str) -> None:
    part = 1 if engine == "memory" else 8

    @settings(max_examples=settings().max_examples // part)
    @given(st.lists(operations, min_size=1, max_size=25))
    def check(done: list[tuple[Any, ...]]) -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            ropewalk.open("memory://" if engine == "memory" else folder) as store,
        ):
            ours = RopewalkBackend(store)
            theirs = StoreBackend(store=InMemoryStore(), namespace=lambda _: ("files",))
            for operation in done:
                assert without_times(call(ours, operation)) == without_times(
                    sized(theirs, call(theirs, operation))
                ), operation
            # Whoever opens them next sees the same.
            assert without_times(RopewalkBackend(store).glob("*")) == without_times(
                sized(theirs, theirs.glob("*"))
            )

    check()


real = st.one_of(
    st.tuples(st.just("write"), paths, texts),
    st.tuples(st.just("edit"), paths, words, words, st.booleans()),
    st.tuples(
        st.just("upload_files"),
        st.lists(st.tuples(paths, datas), max_size=3, unique_by=lambda one: one[0]),
    ),
)


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(real, min_size=1, max_size=15))
def test_contents_equal_those_on_a_disk(done: list[tuple[Any, ...]]) -> None:
    # On a disk a path is a file or a directory, and text files have one kind of line ends.
    done = [one for one in done if "/a/b.py" not in str(one) and "\\r" not in repr(one)]
    with tempfile.TemporaryDirectory() as folder, ropewalk.MemoryStore() as store:
        ours = RopewalkBackend(store)
        theirs = FilesystemBackend(root_dir=folder, virtual_mode=True)
        for operation in done:
            left, right = call(ours, operation), call(theirs, operation)
            if operation[0] == "edit" and left.error is None:
                assert left.occurrences == right.occurrences
        names = [one for one in PATHS if one != "/a/b.py"]

        assert [one.content for one in ours.download_files(names)] == [
            one.content for one in theirs.download_files(names)
        ]
