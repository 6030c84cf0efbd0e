"""What the repository promises to a reader: documentation that runs and is complete."""

from __future__ import annotations

import inspect
import re
from importlib import import_module, metadata
from pathlib import Path

import pytest

import ropewalk
from ropewalk import errors
from tests.pages import python_blocks, run_page

ROOT = Path(__file__).parent.parent
MODULES = [
    "ropewalk",
    "ropewalk.compat",
    "ropewalk.codec",
    "ropewalk.tree",
    "ropewalk.store",
    "ropewalk.store.engine",
    "ropewalk.history",
    "ropewalk.recovery",
    "ropewalk.state",
    "ropewalk.threads",
    "ropewalk.adapters",
    "ropewalk.timeline",
    "ropewalk.cli",
    "ropewalk.testing",
]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FRAMEWORKS = ROOT / "docs/frameworks"
"""The pages here run beside their frameworks: see tests/frameworks."""
NEEDS_REDIS = {"docs/in-depth/own-storage.md", "docs/in-depth/redis.md"}
NEEDS_POSTGRES = {"docs/in-depth/postgres.md", "docs/in-depth/s3.md"}
NEEDS_S3 = {"docs/in-depth/s3.md"}
"""Pages whose examples find a server in the environment."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if python_blocks(page) and page.parent != FRAMEWORKS],
    ids=name_of,
)
def test_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    if name_of(page) in NEEDS_REDIS:
        monkeypatch.setenv("REDIS_URL", request.getfixturevalue("redis_url"))
    if name_of(page) in NEEDS_POSTGRES:
        monkeypatch.setenv("DATABASE_URL", request.getfixturevalue("postgres_url"))
    if name_of(page) in NEEDS_S3:
        monkeypatch.setenv("S3_URL", request.getfixturevalue("s3_url"))

    run_page(page, monkeypatch)


@pytest.mark.parametrize("name", sorted(set(ropewalk.__all__) - {"__version__"}))
def test_a_public_name_has_a_docstring(name: str) -> None:
    value = getattr(ropewalk, name)

    assert inspect.getdoc(value), f"ropewalk.{name} has no docstring"


def test_there_is_one_version() -> None:
    assert metadata.version("ropewalk") == ropewalk.__version__


@pytest.mark.parametrize("name", errors.__all__)
def test_the_reference_names_every_error_with_its_code(name: str) -> None:
    page = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    code = getattr(errors, name).code

    assert re.search(rf"`{name}` *\| `{code}` ", page)


@pytest.mark.parametrize("name", MODULES)
def test_the_reference_lists_the_public_names_of_a_module(name: str) -> None:
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    _, _, rest = page.partition(f"\n## {name}\n")
    table, _, _ = rest.partition("\n#")

    listed = re.findall(r"^\| `(\w+)` \| \w.*\. \|$", table, re.MULTILINE)
    assert sorted(listed) == sorted(import_module(name).__all__)


def test_every_error_is_public_and_has_a_code_of_its_own() -> None:
    classes = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.RopewalkError)
    ]

    assert sorted(one.__name__ for one in classes) == sorted(errors.__all__)
    assert len({one.code for one in classes}) == len(classes)


def test_the_index_names_every_design_note() -> None:
    folder = ROOT / "docs/design"
    index = (folder / "index.md").read_text(encoding="utf-8")
    notes = sorted(folder.glob("[0-9]*.md"))

    assert [note.name for note in notes if f"({note.name})" not in index] == []


def test_the_site_lists_every_page() -> None:
    listed = re.findall(r"[a-z0-9/-]+\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [
        page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.name != "README.md"
    ]

    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|mailto:|#)([^)#]+)", page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []
