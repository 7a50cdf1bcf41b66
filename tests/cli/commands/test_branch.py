"""`ottla branch`: its report, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ottla.cli.commands.branch import branch
from ottla.server.system.files import RealDirectory
from tests.verification.damages import sample

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write the files of a node that stopped cleanly."""
    root = tmp_path / "data"
    for path, content in sample().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


def run(*arguments: object) -> Result:
    return CliRunner().invoke(branch, [str(one) for one in arguments])


def test_a_branch(data: Path, tmp_path: Path) -> None:
    """One line says what it consists of; with --json a document does."""
    result = run(data, tmp_path / "fork")
    assert result.exit_code == 0
    assert "fork: 3 partitions, 0.0 MB shared, 0.0 MB copied, 2 open transactions" in result.output
    made = run(data, tmp_path / "second", "--json", "--at", "1970-01-01T00:16:40", "--topic", "a")
    document = json.loads(made.output)
    assert (document["partition_count"], document["aborted_count"]) == (1, 0)


def test_refusals(data: Path, tmp_path: Path) -> None:
    """Each is one line."""
    (tmp_path / "empty").mkdir()
    assert "has no meta.properties" in run(tmp_path / "empty", tmp_path / "fork").output
    assert "data exists" in run(data, data).output
    assert "is no time" in run(data, tmp_path / "fork", "--at", "yesterday").output
    assert "is not TOPIC-N=OFFSET" in run(data, tmp_path / "fork", "--offset", "a-0").output
    lock = RealDirectory(str(data)).lock(".lock")
    assert "Failed to acquire lock" in run(data, tmp_path / "fork").output
    lock.release()


def test_help_shows_an_example() -> None:
    """As every command's."""
    assert "ottla branch ottla-data experiment" in CliRunner().invoke(branch, ["--help"]).output
