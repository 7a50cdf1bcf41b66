"""`ottla verify`: its report, JSON, exit codes and kept results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ottla.cli.commands.log_repair import log_repair
from ottla.cli.commands.verify import verify
from ottla.server.system.files import RealDirectory
from tests.cli.running import run as run_command
from tests.verification.damages import sample

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

INDEX = "a-0/00000000000000000000.timeindex"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write the files of a node that stopped cleanly."""
    root = tmp_path / "data"
    directory = RealDirectory(str(root), create=True)
    for path, content in sample().items():
        (root / path).parent.mkdir(exist_ok=True)
        directory.write_file_atomically(path, content, sync=False)
    return root


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(verify, [str(data), *arguments])


def damage(data: Path, name: str) -> Path:
    """Change a byte in the middle of a file of the log `a-0`."""
    path = min((data / "a-0").glob(name))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)
    return path


def test_a_sound_directory(data: Path) -> None:
    """The summary is the whole report."""
    result = run(data)
    assert result.exit_code == 0
    assert result.output.startswith("3 partitions, ")
    assert result.output.endswith(": 0 damage, 0 repairable, 0 notice\n")


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_damage_is_named_with_its_next_step(data: Path, jobs: str) -> None:
    """Also by processes that work side by side."""
    path = damage(data, "*.log")
    result = run(data, "--jobs", jobs)
    assert result.exit_code == 1
    [line] = [line for line in result.output.splitlines() if f"a-0/{path.name}" in line]
    assert line.startswith(f"{data}: DAMAGE a-0/{path.name}: damaged at byte ")
    assert line.endswith("see ottla log-repair --partition a-0")


def test_log_repair_mends_what_verify_finds(data: Path) -> None:
    """Indexes of all kinds; the records are untouched."""
    damage(data, "*.timeindex")
    result = run(data)
    assert "REPAIRABLE a-0/" in result.output
    assert "--rebuild-indexes" in result.output
    repaired = CliRunner().invoke(log_repair, ["--log-dir", str(data), "--rebuild-indexes"])
    assert repaired.exit_code == 0
    assert "offset and time index rebuilt" in repaired.output
    assert run(data).exit_code == 0


def test_indexes_of_a_topic_with_dots_are_rebuilt(data: Path) -> None:
    """The name of a file ends at its last dot."""
    damage(data, "*.timeindex")
    (data / "a-0").rename(data / "a.b.c-0")
    arguments = ["--log-dir", str(data), "--partition", "a.b.c-0"]
    repaired = CliRunner().invoke(log_repair, [*arguments, "--rebuild-indexes"])
    assert repaired.exit_code == 0
    assert "a.b.c-0/00000000000000000000: offset and time index rebuilt" in repaired.output
    assert CliRunner().invoke(log_repair, arguments).exit_code == 0


def test_json(data: Path) -> None:
    """One document, each finding with directory, file, problem, meaning and next step."""
    (data / "notes.txt").write_text("x")
    (data / "old").mkdir()
    (data / "link").symlink_to(data / "a-0")
    damage(data, "leader-epoch-checkpoint")
    document = json.loads(run(data, "--json").output)
    kinds = {finding["path"]: finding["severity"] for finding in document["findings"]}
    assert kinds["notes.txt"] == kinds["old"] == kinds["link"] == "notice"
    assert kinds["a-0/leader-epoch-checkpoint"] == "repairable"
    assert document["partitions"] == 3
    assert document["counts"]["damage"] == 0


def test_keys_below_the_cleaners_checkpoint(data: Path) -> None:
    """They occur once: here the checkpoint says more than was compacted."""
    assert run(data, "--records").exit_code == 0
    path = data / "cleaner-offset-checkpoint"
    path.write_text(path.read_text().replace("0\n1\n", "0\n2\na 0 100\n"))
    result = run(data, "--records")
    assert result.exit_code == 1
    assert "REPAIRABLE a-0: offset 1 repeats a key below the cleaner's offset" in result.output
    assert "c-0" not in result.output


def test_a_later_run_checks_only_what_changed(data: Path, tmp_path: Path) -> None:
    """The results of partitions with equal files are kept, findings too; a torn line is not."""
    state = tmp_path / "state"
    damage(data, "*.log")
    first = run(data, "--state", str(state))
    with state.open("a") as file:
        file.write('{"key": "torn')
    second = run(data, "--state", str(state))
    assert "3 partitions (3 unchanged)" in second.output
    assert second.output.splitlines()[0] == first.output.splitlines()[0]
    damage(data, "*.timeindex")
    assert "3 partitions (2 unchanged)" in run(data, "--state", str(state)).output


def test_a_running_node_is_refused(data: Path) -> None:
    """Its files change while they are read."""
    lock = RealDirectory(str(data)).lock(".lock")
    result = run(data)
    lock.release()
    assert result.exit_code == 3
    assert "is used by a running node" in result.output


def test_directories_of_two_clusters(data: Path, tmp_path: Path) -> None:
    """They have nothing to be compared by."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").write_text("version=1\ncluster.id=other\nnode.id=1\n")
    result = run(data, str(other))
    assert result.exit_code == 3
    assert "not of one node" in result.output


def test_help_shows_an_example() -> None:
    """As every command's."""
    assert "ottla verify ottla-data" in CliRunner().invoke(verify, ["--help"]).output


def test_the_exit_code_is_that_of_the_command(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A check that could not take place is told from damage; errors of usage are 1, as Kafka's."""
    lock = RealDirectory(str(data)).lock(".lock")
    assert run_command(capsys, "verify", str(data))[0] == 3
    lock.release()
    assert run_command(capsys, "verify", str(data))[0] == 0
    assert run_command(capsys, "verify")[0] == 1
