"""`ottla backup --list`: a damaged manifest does not hide the other backups."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ottla.backup.backup import Backup
from ottla.backup.store import DirectoryStore
from ottla.cli.commands.backup import backup
from ottla.server.system.files import RealDirectory
from tests.storage.logs import NOW_MS
from tests.verification.damages import sample

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Make two backups of a node; the manifest of the first is cut."""
    source = RealDirectory(str(tmp_path / "source"), create=True)
    for path, content in sample().items():
        (tmp_path / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / path).write_bytes(content)
    place = tmp_path / "place"
    store = DirectoryStore(RealDirectory(str(place), create=True))
    for now_ms in (NOW_MS, NOW_MS + 1):
        Backup(source, store, now_ms=now_ms).run()
    first = place / "backups" / f"{NOW_MS:015d}.json"
    first.write_bytes(first.read_bytes()[:100])
    return place


def run(*arguments: object) -> Result:
    return CliRunner().invoke(backup, [str(argument) for argument in arguments])


def test_the_list_names_whole_and_damaged_backups(place: Path) -> None:
    """The exit code says that one is damaged; JSON has the whole ones."""
    result = run(place, "--list")
    whole, damaged = result.stdout.splitlines(), result.stderr.splitlines()
    assert result.exit_code == 1
    assert len(whole) == len(damaged) == 1
    assert whole[0].startswith(f"{NOW_MS + 1:015d}  ")
    assert whole[0].endswith(" bytes")
    assert f"{NOW_MS:015d}  " in damaged[0]
    assert "damaged: the manifest cannot be read" in damaged[0]
    result = run(place, "--list", "--json")
    assert result.exit_code == 1
    assert [found["backup_id"] for found in json.loads(result.stdout)] == [f"{NOW_MS + 1:015d}"]
