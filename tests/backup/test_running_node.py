"""A backup of a node that serves transactions and compacts meanwhile, and object stores."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ottla.backup.backup import Backup
from ottla.backup.manifest import read_backups, read_manifest
from ottla.backup.restore import RestoreRequest, restore
from ottla.backup.store import DirectoryStore, ObjectBackupStore
from ottla.branches.fork_point import ForkPoint
from ottla.cli.commands.backup import backup, restore_command
from ottla.cli.commands.verify import verify
from ottla.server.system.files import RealDirectory
from ottla.storage.remote.managers.object_store import ObjectStorage
from ottla.testing import Cluster, Kafka
from tests.storage.logs import NOW_MS
from tests.verification.damages import sample
from tests.waits import WAIT_S, read_to_end

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.soak
def test_transactions_over_two_topics_are_restored_whole(tmp_path: Path) -> None:
    """Each transaction is in both topics or in neither, and the group's offset goes with them."""
    stop = threading.Event()
    data, place, made = (str(tmp_path / name) for name in ("data", "place", "made"))
    config = {"replica.high.watermark.checkpoint.interval.ms": "50"}
    with Cluster(data_dir=data, config=config) as cluster, Kafka(cluster) as kafka:
        kafka.topic("left", exact=True)
        kafka.topic("right", exact=True, compact=True)

        def send() -> None:
            number = 0
            while not stop.is_set():
                with kafka.transaction("mover") as producer:
                    for topic in ("left", "right"):
                        producer.send(topic, value=b"%d" % number, key=b"%d" % number)
                number += 1

        sender = threading.Thread(target=send)
        sender.start()
        try:
            kafka.wait(
                lambda: kafka.offsets("left", 0, earliest=False) > 20, WAIT_S, lambda: "no load"
            )
            for _ in range(3):
                result = CliRunner().invoke(backup, [data, place])
                assert result.exit_code == 0, result.output
        finally:
            stop.set()
            sender.join()
    result = CliRunner().invoke(restore_command, [place, made])
    assert result.exit_code == 0, result.output
    assert "verified" in result.output
    assert CliRunner().invoke(verify, [made]).exit_code == 0
    with Cluster(data_dir=made) as cluster, Kafka(cluster) as kafka:
        values = []
        for topic in ("left", "right"):
            kafka.topics.clear()
            with kafka.consumer(topic, group=topic, isolation_level="read_committed") as consumer:
                values.append([record.value for record in read_to_end(consumer)])
    assert values[0] == values[1] == [b"%d" % number for number in range(len(values[0]))]
    assert len(values[0]) > 5


def test_an_object_store(tmp_path: Path) -> None:
    """As a directory: objects by their content, the manifest last."""
    pytest.importorskip("obstore")
    directory = RealDirectory(str(tmp_path))
    for path, content in sample().items():
        (tmp_path / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / path).write_bytes(content)
    storage = ObjectStorage()
    storage.configure({"url": "memory:///"})
    store, source = ObjectBackupStore(storage), RealDirectory(str(tmp_path / "source"))
    Backup(source, store, now_ms=NOW_MS).run()
    assert Backup(source, store, now_ms=NOW_MS + 1).run().stored_bytes == 0
    assert len(read_backups(store)) == 2
    restore(directory, store, RestoreRequest("made", ForkPoint()), now_ms=NOW_MS)
    assert CliRunner().invoke(verify, [str(tmp_path / "made")]).exit_code == 0
    with pytest.raises(FileNotFoundError):
        list(store.blocks("objects/none"))


def test_the_list_and_refusals(tmp_path: Path) -> None:
    """Each is one line."""
    for path, content in sample().items():
        (tmp_path / "data" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / path).write_bytes(content)
    data, place = str(tmp_path / "data"), str(tmp_path / "place")
    assert "no log directory" in CliRunner().invoke(backup, [str(tmp_path), place]).output
    assert "give DIR and PLACE" in CliRunner().invoke(backup, [place]).output
    made = CliRunner().invoke(backup, [data, place])
    assert made.exit_code == 0
    listed = CliRunner().invoke(backup, [place, "--list"])
    known = read_manifest(DirectoryStore(RealDirectory(place))).backup_id
    assert listed.output.startswith(f"{known}  ")
    taken = CliRunner().invoke(restore_command, [place, data])
    assert taken.exit_code == 1
    assert "restore into a new directory" in taken.output
    for command in (backup, restore_command):
        assert "Examples:" in CliRunner().invoke(command, ["--help"]).output
