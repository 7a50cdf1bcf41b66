"""A real node with two log directories, the disk of one of which hangs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ottla import Admin, NewTopic, Producer
from ottla.server.system.files import RealFile
from ottla.testing.cluster import Cluster
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_disk_that_hangs_stops_no_other_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Produces that wait for flushes of the healthy directory are acknowledged meanwhile."""
    thawed, hanging = threading.Event(), []
    frozen = str(tmp_path / "b") + "/"
    sync = RealFile.sync

    def stall(file: RealFile) -> None:
        if file.volume == frozen:
            hanging.append(file)
            thawed.wait(WAIT_S)
        sync(file)

    log_dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    config = {"log.flush.interval.messages": "1"}
    with Cluster(data_dir=log_dirs, config=config) as cluster, ThreadPoolExecutor(8) as senders:
        settings = {"bootstrap.servers": cluster.bootstrap, "linger.ms": "0"}
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 8, 1)])
        with Producer(config=settings) as blocked, Producer(config=settings) as producer:
            for number in range(8):
                producer.send_and_wait("t", b"before", partition=number)
            # only now: a log is made after the creation of its topic was answered
            held = {number for number in range(8) if (tmp_path / "b" / f"t-{number}").exists()}
            assert 0 < len(held) < 8
            monkeypatch.setattr(RealFile, "sync", stall)
            waiting = [
                senders.submit(blocked.send_and_wait, "t", b"x", partition=number)
                for number in held
            ]
            for number in set(range(8)) - held:
                producer.send_and_wait("t", b"y", partition=number)
            assert not any(one.done() for one in waiting)
            thawed.set()
            for one in waiting:
                one.result(WAIT_S)
            assert hanging
