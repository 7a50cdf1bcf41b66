"""Java's MirrorMaker and ours take over from each other. The brokers are Ottla's."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ottla.clients.blocking import Admin
from ottla.clients.offsets import OffsetAndMetadata
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition
from tests.connect.mirror.test_mirror_flows import FILE, records_of, send, until
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
MORE = """
config.storage.replication.factor=1
status.storage.replication.factor=1
b.offset.flush.interval.ms=200
"""


def test_mirrors_take_over_in_turn(kafka: Kafka, tmp_path: Path) -> None:
    """No record is copied twice or left out, and the group's offset follows, with a separator."""
    file, sent = tmp_path / "mm2.properties", list[bytes]()
    commands = {
        "java": kafka.command("org.apache.kafka.connect.mirror.MirrorMaker", str(file)),
        "ottla": [sys.executable, "-m", "ottla", "connect-mirror-maker", str(file)],
    }
    with Cluster() as a, Cluster() as b, Admin(bootstrap_servers=b.bootstrap) as target:
        text = FILE.format(a=a.bootstrap, b=b.bootstrap, back="false")
        file.write_text(f"{text}{MORE}replication.policy.separator=_\ntopics=pay\n")
        with Admin(bootstrap_servers=a.bootstrap) as source:
            source.create_topic("pay", 1, 1)
        for kind in ("java", "ottla", "java", "ottla"):
            more = [b"%d" % it for it in range(len(sent), len(sent) + 300)]
            send(a.bootstrap, "pay", more)
            sent += more
            with Admin(bootstrap_servers=a.bootstrap) as source:
                end = {TopicPartition("pay", 0): OffsetAndMetadata(len(sent), kind)}
                source.alter_group_offsets("billing", end)
            with (tmp_path / f"{kind}.log").open("ab") as log:
                process = subprocess.Popen(commands[kind], stdout=log, stderr=log)
            try:
                copies = records_of(b.bootstrap, "a_pay", len(sent))
                assert [it.value for it in copies] == sent
                expected = {TopicPartition("a_pay", 0): OffsetAndMetadata(len(sent), kind)}
                until(lambda e=expected: target.list_group_offsets("billing") == e)  # type: ignore[misc] # ruff's B023
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(WAIT_S)
