"""Installing the servers that tests run against: each way that there is, and the last word."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[1] / "tools/servers.py"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, on a machine that has one server and wants another."""
    spec = importlib.util.spec_from_file_location("servers_tool", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # A NamedTuple looks for the module that it is made in.
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(
        module, "SERVERS", [module.Server("sh", "dash"), module.Server("wanted-server", "wanted")]
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    return module


def apt_get(folder: Path, script: str) -> Path:
    """Put a package manager on the PATH that does this, and says what it was asked."""
    log = folder / "asked"
    program = folder / "apt-get"
    program.write_text(f'#!/bin/sh\necho "$*" >> {log}\n{script}\n')
    program.chmod(0o755)
    return log


def program(folder: Path) -> None:
    """Put the wanted server on the PATH."""
    (folder / "wanted-server").write_text("#!/bin/sh\n")
    (folder / "wanted-server").chmod(0o755)


def test_nothing_is_done_where_all_servers_are_on_the_path(
    tool: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = apt_get(tmp_path, "exit 1")
    program(tmp_path)

    assert tool.main() == 0

    assert not log.exists()
    assert capfd.readouterr() == ("", "")


def test_root_installs_the_missing_packages_and_starts_no_service(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    policy = tool.POLICY
    seen = tmp_path / "seen"
    bring = f"cp {policy} {seen}; cp /bin/sh {tmp_path}/wanted-server"
    log = apt_get(tmp_path, f"if [ $2 = install ]; then {bring}; fi")

    assert tool.main() == 0

    assert log.read_text().splitlines() == [
        "--quiet update",
        "--quiet install --yes --no-install-recommends wanted",
    ]
    assert "exit 101" in seen.read_text()
    assert not policy.exists()


def test_a_user_is_told_in_one_sentence_what_is_missing(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    log = apt_get(tmp_path, "exit 1")

    assert tool.main() == 1

    said = capsys.readouterr()
    assert said.err == (
        "the tests need wanted-server, which is not installed: run `apt-get install wanted` as "
        "root, or put it on the PATH in another way.\n"
    )
    assert said.out == ""
    assert not log.exists()


def test_root_without_debian_is_told_the_same(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert tool.main() == 1

    assert "the tests need sh, wanted-server" in capsys.readouterr().err


def test_a_package_that_cannot_be_installed_fails(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    apt_get(tmp_path, 'if [ $2 = install ]; then echo "Unable to locate package"; exit 100; fi')

    assert tool.main() == 1

    said = capsys.readouterr().err
    assert "Unable to locate package" in said
    assert said.endswith("install --yes --no-install-recommends wanted` failed.\n")
    assert not tool.POLICY.exists()


def test_a_package_without_the_program_fails(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    apt_get(tmp_path, "exit 0")

    assert tool.main() == 1

    assert "the tests need wanted-server, which is not installed" in capsys.readouterr().err


def test_the_s3_server_comes_with_the_packages() -> None:
    program = Path(sys.executable).with_name("weed")

    assert program.exists()
