"""`ottla storage`: output and exit codes of bin/kafka-storage.sh."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from ottla.cli.commands.storage import storage
from ottla.types import Uuid

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    """Write a node's properties file for a dynamic quorum."""
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:19093\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    return path


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(storage, list(arguments))


def test_format_then_info(properties: Path, tmp_path: Path) -> None:
    """Formatting reports its steps, info shows the directories, a second format is refused."""
    arguments = ("format", "-t", CLUSTER_ID, "-c", str(properties), "--standalone")
    result = _run(*arguments)
    assert result.exit_code == 0, result.output
    data = tmp_path / "data"
    assert result.output.endswith(
        f"Formatting dynamic metadata voter directory {data} with metadata.version 4.3-IV0.\n"
    )
    shown = _run("info", "-c", str(properties))
    assert shown.exit_code == 0
    assert shown.output.startswith(f"Found log directory:\n  {data}\n\nFound metadata: {{cluster.")
    again = _run(*arguments)
    assert again.exit_code == 1
    assert again.stderr == (
        f"Log directory {data} is already formatted. Use --ignore-formatted to ignore this "
        "directory and format the others.\n"
    )
    assert _run(*arguments, "--ignore-formatted").output == (
        "All of the log directories are already formatted.\n"
    )


def test_the_environment_counts(properties: Path, tmp_path: Path) -> None:
    """Environment variables determine the formatted directory, as they do for the node."""
    other = tmp_path / "other"
    arguments = ["format", "-t", CLUSTER_ID, "-c", str(properties), "--standalone"]
    result = CliRunner(env={"KAFKA_LOG_DIRS": str(other)}).invoke(storage, arguments)
    assert result.exit_code == 0, result.output
    assert (other / "meta.properties").exists()
    assert not (tmp_path / "data").exists()
    wrong = CliRunner(env={"KAFKA_NODE_ID_FILE": "/none"}).invoke(storage, arguments)
    assert wrong.exit_code == 1
    assert "cannot read /none, which KAFKA_NODE_ID_FILE names" in wrong.stderr


def test_info_finds_problems(properties: Path, tmp_path: Path) -> None:
    """A missing or unformatted directory is a problem with exit code 1."""
    result = _run("info", "-c", str(properties))
    assert result.exit_code == 1
    assert result.output == f"Found problem:\n  {tmp_path / 'data'} does not exist\n\n"
    (tmp_path / "data").mkdir()
    assert f"{tmp_path / 'data'} is not formatted." in _run("info", "-c", str(properties)).output


def test_random_ids_are_ids() -> None:
    """random-uuid prints a Uuid of 22 characters that does not begin with a dash."""
    texts = {_run("random-uuid").output.strip() for _ in range(20)}
    assert len(texts) == 20
    for text in texts:
        assert str(Uuid.parse(text)) == text
        assert not text.startswith("-")


def test_version_mapping_and_dependencies() -> None:
    """The tables of the features by release."""
    assert _run("version-mapping").output == (
        "metadata.version=30 (4.3-IV0)\nkraft.version=1\ntransaction.version=2\ngroup.version=1\n"
        "eligible.leader.replicas.version=1\nshare.version=1\nstreams.version=1\n"
    )
    assert _run("version-mapping", "-r", "9.9").stderr.startswith("Unknown metadata.version '9.9'.")
    result = _run(
        "feature-dependencies",
        "--feature",
        "transaction.version=2",
        "--feature",
        "eligible.leader.replicas.version=1",
    )
    assert result.output == (
        "transaction.version=2 has no dependencies.\n"
        "eligible.leader.replicas.version=1 requires:\n    metadata.version=23 (4.0-IV1)\n"
    )
    assert _run("feature-dependencies", "-f", "nosuch=1").stderr == "Unknown feature: nosuch\n"


def test_users_and_older_releases_can_be_given(properties: Path) -> None:
    """--add-scram never prints the password; --release-version sets the level."""
    result = _run(
        "format",
        "-t",
        CLUSTER_ID,
        "-c",
        str(properties),
        "-s",
        "-r",
        "4.0-IV3",
        "-S",
        "SCRAM-SHA-256=[name=alice,password=alice-secret]",
    )
    assert result.exit_code == 0, result.output
    assert "with metadata.version 4.0-IV3." in result.output
    assert "alice-secret" not in result.output


def test_a_bad_file_is_told(tmp_path: Path) -> None:
    """A missing or wrong configuration is one line on stderr."""
    result = _run("info", "-c", str(tmp_path / "none.properties"))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error loading")


def test_releases_that_are_known() -> None:
    """The mapping includes the next release, as in Kafka; formatting with it is refused."""
    assert _run("version-mapping", "-r", "9.9").stderr.endswith(" 4.3-IV0, 4.4-IV0\n")
    assert _run("version-mapping", "-r", "4.4-IV0").stdout.startswith(
        "metadata.version=31 (4.4-IV0)\n"
    )
    assert _run("version-mapping", "-r", "3.9").stdout.startswith("metadata.version=21 (3.9)\n")
