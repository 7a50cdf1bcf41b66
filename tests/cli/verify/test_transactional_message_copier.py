"""`ottla transactional-message-copier`: copies once, whatever is aborted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ottla.cli.verify.transactional_message_copier import transactional_message_copier
from ottla.testing.cluster import Cluster
from ottla.testing.kafka import Kafka

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 130


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """Return a node."""
    with Cluster() as cluster, Kafka(cluster) as kafka:
        yield kafka


@pytest.mark.parametrize(
    "flags",
    [(), ("--group-mode", "--use-group-metadata"), ("--enable-random-aborts",)],
    ids=["assigned", "member", "aborts"],
)
def test_each_record_is_copied_once(kafka: Kafka, flags: tuple[str, ...]) -> None:
    """Aborted transactions are read and written again; the offsets follow."""
    source, target = kafka.topic("source"), kafka.topic("target")
    source.produce([b"%d" % number for number in range(COUNT)])
    group = kafka.group("copier")
    result = CliRunner().invoke(
        transactional_message_copier,
        [
            *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
            *("--broker-list", kafka.bootstrap, "--transactional-id", group),
            *("--consumer-group", group, "--transaction-size", "20", *flags),
        ],
    )
    assert result.exit_code == 0, result.output
    last = json.loads(result.output.splitlines()[-1])
    assert (last["stage"], last["totalProcessed"], last["remaining"]) == (
        "ShutdownComplete",
        COUNT,
        0,
    )
    copied = [record.value for record in target.records(read_committed=True)]
    assert copied == [b"%d" % number for number in range(COUNT)]
    assert kafka.lag(group) == 0


def test_missing_flags_are_named() -> None:
    """As argparse4j does."""
    result = CliRunner().invoke(transactional_message_copier, ["--input-topic", "a"])
    assert result.exit_code == 2
    assert "argument --input-partition is required" in result.output
