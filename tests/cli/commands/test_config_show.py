"""`ottla config show` and `ottla server-start --check`: effective settings, or all errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ottla.cli.commands.config_show import config
from ottla.cli.commands.server_start import server_start

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

TEXT = """\
process.roles=broker,controller
node.id=4
controller.quorum.bootstrap.servers=localhost:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
my.plugin.password=s3cret
"""


@pytest.fixture
def properties(tmp_path: Path) -> str:
    """Write a configuration."""
    path = tmp_path / "server.properties"
    path.write_text(TEXT)
    return str(path)


def show(*arguments: str, **variables: str) -> Result:
    """Call the command with the given environment variables."""
    return CliRunner(env=variables).invoke(config, ["show", *arguments])


def test_every_setting_is_there(properties: str) -> None:
    """Without flags all settings are shown by name, defaults too; unknown values are hidden."""
    result = show("-c", properties)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert {"node.id=4", "log.retention.hours=168", "log.retention.ms=null"} <= set(lines)
    assert "my.plugin.password=[hidden]" in lines
    assert "s3cret" not in result.output
    assert len(lines) > 300


def test_origins(properties: str) -> None:
    """Each origin is shown: line of the file, variable, flag, or default."""
    result = show(
        *("-c", properties, "--origin", "--override", "num.partitions=3"),
        KAFKA_SSL_KEY_PASSWORD="s3cret",
        KAFKA_LOG_RETENTION_HOURS="7",
    )
    assert result.exit_code == 0, result.output
    found = {line.split("=")[0].split()[-1]: line for line in result.stdout.splitlines()}
    assert found["node.id"].split() == [f"{properties}:2", "node.id=4"]
    assert found["num.partitions"].split() == ["--override", "num.partitions=3"]
    assert found["log.retention.hours"].startswith("KAFKA_LOG_RETENTION_HOURS ")
    assert found["ssl.key.password"].endswith("  ssl.key.password=[hidden]")
    assert found["num.io.threads"].split() == ["default", "num.io.threads=8"]
    assert "s3cret" not in result.output


def test_only_what_was_given(properties: str) -> None:
    """--given omits defaults."""
    lines = show("-c", properties, "--given", "--origin").stdout.splitlines()
    assert len(lines) == 6
    assert all(line.startswith(properties) for line in lines)


def test_the_development_node_is_shown_without_a_file() -> None:
    """Without a file the settings are those of the development node."""
    assert "log.dirs=./ottla-data" in show("--given").stdout.splitlines()


def check(*arguments: str, **variables: str) -> Result:
    """Call server-start --check."""
    return CliRunner(env=variables).invoke(server_start, ["--check", *arguments])


def test_check_starts_nothing(properties: str, tmp_path: Path) -> None:
    """A valid configuration is reported; no directory is created."""
    result = check(properties, KAFKA_LOG_DIRS=str(tmp_path / "data"))
    assert (result.exit_code, result.stdout) == (0, "The configuration is valid.\n")
    assert not (tmp_path / "data").exists()


def test_check_tells_all_errors(properties: str) -> None:
    """Every problem is reported with its origin; status 1."""
    result = check(
        *(properties, "--override", "log.segment.byte=1"), KAFKA_LOG_DIRS="", KAFKA_NODE_ID="x"
    )
    assert result.exit_code == 1
    for place in ("(KAFKA_NODE_ID)", "did you mean log.segment.bytes? (--override)"):
        assert place in result.stderr
    assert show("-c", properties, KAFKA_NODE_ID="x").exit_code == 1


def test_a_missing_file_is_told() -> None:
    """The path is in the sentence."""
    result = show("-c", "/nowhere/server.properties")
    assert result.exit_code == 1
    assert "Error loading /nowhere/server.properties: No such file" in result.stderr


def test_a_file_in_latin_1_is_read_as_java_reads_it(tmp_path: Path) -> None:
    """A comment in Latin-1 is accepted, as in Kafka."""
    path = tmp_path / "server.properties"
    path.write_bytes(b"# pr\xe9nom\n" + TEXT.encode() + b"broker.rack=caf\xe9\n")
    result = show("-c", str(path))
    assert result.exit_code == 0, result.output
    assert "broker.rack=caf\u00e9" in result.stdout.splitlines()
