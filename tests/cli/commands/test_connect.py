"""`ottla connect new`: the written packages pass their own tests; names that are refused."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.cli.running import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("kind", "class_name"), [("source", "AuditLogSource"), ("sink", "AuditLogSink")]
)
def test_the_package_passes_its_own_tests(
    kind: str, class_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a process of its own; its entry point names its class, and linters find nothing."""
    status, out, _ = run(capsys, "connect", "new", kind, "audit-log", "--directory", str(tmp_path))
    target = tmp_path / "audit-log"
    assert (status, out) == (0, f"Wrote {target}; next: cd {target} && python -m pytest\n")
    project = tomllib.loads((target / "pyproject.toml").read_text(encoding="utf-8"))
    points = project["project"]["entry-points"]["ottla.connectors"]
    assert points == {"audit-log": f"audit_log:{class_name}"}
    texts = [it.read_text(encoding="utf-8") for it in target.rglob("*") if it.is_file()]
    assert not any("@" in text for text in texts)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(target / "src"), "PYTEST_ADDOPTS": ""}
    tested = subprocess.run(
        command, cwd=target, env=environment, capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout
    assert "3 passed" in tested.stdout


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory or a file of the name stays as it is."""
    (tmp_path / "weather").mkdir()
    (tmp_path / "audit").write_text("mine")
    for name in ("weather", "audit"):
        status, _, err = run(capsys, "connect", "new", "sink", name, "--directory", str(tmp_path))
        assert status == 1
        assert f"{tmp_path / name} exists; nothing was written" in err
    assert list((tmp_path / "weather").iterdir()) == []
    assert (tmp_path / "audit").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["", "Weather", "../up", "/abs", "a_b", "a--b", "-a", "a-", "1a", "a b", "é", "a" * 61,
             "a\n", 'a"'],
)  # fmt: skip
def test_invalid_names_have_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written, neither here nor elsewhere."""
    arguments = ["connect", "new", "--directory", str(tmp_path), "--", "source", name]
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "the name must have small letters, digits and single hyphens" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["json", "sys", "class", "ottla", "click", "tests"])
def test_names_that_would_hide_a_module_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of Python, of a package that is installed, and keywords."""
    status, _, err = run(capsys, "connect", "new", "source", name, "--directory", str(tmp_path))
    assert status == 1
    assert f"{name} is a name of Python or of a package; choose another one" in err
    assert list(tmp_path.iterdir()) == []


def test_the_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the group and of its command."""
    for words in (["connect", "--help"], ["connect", "new", "--help"]):
        status, out, _ = run(capsys, *words)
        assert status == 0
        assert "ottla connect new source weather" in out
