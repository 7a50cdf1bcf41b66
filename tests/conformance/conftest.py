"""Fixtures of the conformance tests: the jars of Kafka 4.3.0 and a running node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.kafka import Kafka, RealKafka, kafka_or_skip, running_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    """Return the installation of Kafka 4.3.0."""
    return kafka_or_skip()


@pytest.fixture(scope="session")
def real_kafka(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """Run one node for the whole session; tests use topics and groups of their own names."""
    with running_kafka(kafka, tmp_path_factory.mktemp("kafka")) as node:
        yield node
