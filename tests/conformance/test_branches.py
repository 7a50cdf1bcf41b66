"""Kafka 4.3.0: its directories are sound, and it starts on branches and backups of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from ottla.cli.commands.backup import backup, restore_command
from ottla.cli.commands.branch import branch
from ottla.cli.commands.verify import verify
from ottla.clients.blocking import Admin, Consumer, Producer
from tests.conformance.kafka import RealKafka
from tests.waits import read_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import click

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
RECORDS = 3000
COMMITTED = 40


@pytest.fixture
def node(kafka: Kafka, tmp_path: Path) -> Iterator[RealKafka]:
    """Run a node of real Kafka with small segments, and traffic of several kinds."""
    node = RealKafka(kafka, tmp_path, {"log.segment.bytes": "1048576"})
    node.write_properties()
    node.format()
    node.start()
    _send(node)
    yield node
    node.kill()


def _send(node: RealKafka) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": node.bootstrap}
    with Admin(**settings) as admin:
        admin.create_topic("orders", 2, 1)
        admin.create_topic("latest", 1, 1, configs={"cleanup.policy": "compact"})
    with Producer(**settings) as producer:
        for number in range(RECORDS):
            producer.send("orders", value=bytes(1000), key=b"%d" % number)
            producer.send("latest", value=b"%d" % number, key=b"%d" % (number % 5))
        producer.flush()
    with Producer(transactional_id="t", **settings) as producer:
        producer.init_transactions()
        for number in range(COMMITTED):
            producer.begin_transaction()
            producer.send("orders", value=b"transaction", partition=number % 2)
            if number % 4:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
    with Consumer("orders", group_id="readers", auto_offset_reset="earliest", **settings) as reader:
        while not reader.poll(5.0):
            pass
        reader.commit()


def _count(node: RealKafka) -> tuple[int, int]:
    """Return how many records are committed, and how many the group has read."""
    settings: dict[str, Any] = {"bootstrap_servers": node.bootstrap}
    with Consumer(
        "orders",
        group_id=node.properties["log.dirs"],  # a new one on each copy: it commits
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **settings,
    ) as reader:
        count = len(read_to_end(reader))
    with Admin(**settings) as admin:
        offsets = admin.list_group_offsets("readers")
    return count, sum(found.offset for found in offsets.values() if found is not None)


def _run(command: click.Command, *arguments: object) -> str:
    result = CliRunner().invoke(command, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def _start_on(node: RealKafka, path: Path) -> tuple[int, int]:
    node.properties["log.dirs"] = str(path)
    node.write_properties()
    node.start()
    try:
        return _count(node)
    finally:
        node.stop()


def test_kafkas_directory(node: RealKafka, tmp_path: Path) -> None:
    """After a clean stop and after a kill; on each copy Kafka has the same records and offsets."""
    place = tmp_path / "place"
    node.kill()
    assert " 0 damage, 0 repairable" in _run(verify, node.log_dir)
    node.start()
    before = _count(node)
    node.stop()
    _run(backup, node.log_dir, place)
    assert " 0 damage, 0 repairable" in _run(verify, node.log_dir)
    _run(branch, node.log_dir, tmp_path / "fork", "--same-ids")
    _run(restore_command, place, tmp_path / "restored")
    for name in ("fork", "restored"):
        assert " 0 damage, 0 repairable" in _run(verify, tmp_path / name)
        assert _start_on(node, tmp_path / name) == before
        assert " 0 damage, 0 repairable" in _run(verify, tmp_path / name)
    assert before[0] == RECORDS + COMMITTED - COMMITTED // 4
    assert " 0 damage, 0 repairable" in _run(verify, node.log_dir)
