"""One directory under Kafka 4.3.0 and Ottla in turn, after clean stops and kills, loses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.directories.alternating import AlternatingNode, foreign_marks
from tests.conformance.directories.traffic import Traffic
from tests.conformance.tiers.tiered_kafka import tier_properties

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
SECURITY = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
CLEANER = {"log.cleaner.backoff.ms": "500", "log.segment.delete.delay.ms": "1000"}
TURNS = {
    "clean": (("kafka", "stop"), ("ottla", "stop"), ("kafka", "stop"), ("ottla", "stop")),
    "killed": (("ottla", "kill"), ("kafka", "kill"), ("ottla", "kill"), ("kafka", "kill")),
}


@pytest.mark.parametrize("ends", TURNS)
def test_nothing_is_lost_between_the_two(kafka: Kafka, tmp_path: Path, ends: str) -> None:
    """Every record, offset, right, quota and user is there after each change; dumps are valid."""
    tier = tmp_path / "tier"
    properties = {**tier_properties(kafka, tier), **SECURITY, **CLEANER}
    node = AlternatingNode(kafka, tmp_path, properties)
    node.format()
    with Traffic(node.bootstrap) as traffic:
        for number, (kind, end) in enumerate(TURNS[ends]):
            node.run_as(kind)
            try:
                if number == 0:
                    traffic.prepare()
                else:
                    traffic.check()
                traffic.write(number)
                traffic.wait_until_tiered(tier, 2 * number + 1)
            finally:
                node.stop() if end == "stop" else node.kill()
            assert foreign_marks(node.log_dir) == []
        node.run_as("kafka")
        try:
            traffic.check()
            traffic.write(len(TURNS[ends]))
            traffic.check()
            traffic.end_open_transactions()
            traffic.check_decided()
        finally:
            node.stop()
    text = node.dump()
    assert "isvalid: false" not in text
    assert "Found timestamp mismatch" not in text
    assert "Non-consecutive offsets" not in text
