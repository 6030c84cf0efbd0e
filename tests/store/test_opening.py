"""Opening a store without making one."""

from __future__ import annotations

from pathlib import Path

import pytest

import ropewalk
from ropewalk import FileStore
from ropewalk.errors import InvalidInput, NotFound


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_nothing_is_made_where_no_store_is(form: str, tmp_path: Path) -> None:
    for name in ("none", "none/below"):
        with pytest.raises(NotFound, match="there is no store in"):
            ropewalk.open(form.format(tmp_path / name), create=False)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_store_that_is_there_is_opened(form: str, tmp_path: Path) -> None:
    url = form.format(tmp_path / "store")
    with ropewalk.open(url) as made:
        store_id = made.header.store_id

    with ropewalk.open(url, create=False) as opened:
        assert opened.header.store_id == store_id


def test_an_empty_folder_is_left_empty(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        ropewalk.open(tmp_path, create=False)

    assert list(tmp_path.iterdir()) == []


def test_a_path_finds_the_engine_of_a_store_that_is_there(tmp_path: Path) -> None:
    FileStore(tmp_path / "plain").close()

    with ropewalk.open(tmp_path / "plain") as opened:
        assert isinstance(opened, FileStore)
    assert not (tmp_path / "plain" / "store.db").exists()


@pytest.mark.parametrize(
    "url",
    [
        "postgres:/me:hunter2@host/db",
        "postgresql:me:hunter2@host/db",
        "postgresql//me:hunter2@host/db",
        "redis:/:hunter2@host/0",
        "s3:/key:hunter2@bucket",
        "host=localhost user=me password=hunter2",
    ],
)
def test_a_url_with_a_typo_is_not_taken_for_a_folder(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidInput, match="two slashes") as caught:
        ropewalk.open(url)

    assert "hunter2" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_named_like_a_url_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    ropewalk.open("./redis:agent").close()

    assert (tmp_path / "redis:agent").is_dir()


@pytest.mark.parametrize("name", ["a" * 300, "with\0null"])
def test_a_name_that_no_folder_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        ropewalk.open(str(tmp_path / name))


def test_a_store_in_memory_has_no_name() -> None:
    with pytest.raises(InvalidInput, match="just memory://"):
        ropewalk.open("memory://agent")


@pytest.mark.parametrize("form", ["{}", "file://{}", "memory://"])
def test_a_store_is_opened_with_its_durability_and_its_limit(form: str, tmp_path: Path) -> None:
    url = form.format(tmp_path / "store")

    with ropewalk.open(url, durability="relaxed", size_limit=1_000_000) as store:
        assert store.size_limit == 1_000_000
        assert store.durability == ("none" if form == "memory://" else "relaxed")
