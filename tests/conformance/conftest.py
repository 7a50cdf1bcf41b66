"""Fixtures of the conformance tests: the jars of Kafka 4.3.0 and a running node."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.conformance.clients.node_process import read_when_ready
from tests.conformance.clients.target import SELECTED, running_cluster
from tests.conformance.kafka import Kafka, RealKafka, kafka_or_skip, running_kafka
from tests.conformance.tool_pairs import Place, ToolJvm
from tests.ports import free_ports
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    """Return the installation of Kafka 4.3.0."""
    return kafka_or_skip()


@pytest.fixture(scope="session")
def real_kafka(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """Run one node for the whole session; tests use separate topics and groups."""
    with running_kafka(kafka, tmp_path_factory.mktemp("kafka")) as node:
        yield node


@pytest.fixture(scope="module")
def untouched_kafka(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """Run a node for one module whose tests list all topics or groups."""
    with running_kafka(kafka, tmp_path_factory.mktemp("kafka")) as node:
        yield node


@pytest.fixture(scope="session")
def tool_jvm(kafka: Kafka) -> Iterator[ToolJvm]:
    """Run Kafka's tools in one JVM."""
    jvm = ToolJvm(kafka)
    yield jvm
    jvm.close()


@pytest.fixture(scope="module")
def ottla_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Run an Ottla node in its own process for one module."""
    directory = tmp_path_factory.mktemp("ottla")
    ready = directory / "ready.json"
    broker, controller = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}"
    overrides = (
        f"listeners={listeners}",
        f"log.dirs={directory / 'logs'}",
        "offsets.topic.num.partitions=5",
        "group.initial.rebalance.delay.ms=0",
    )
    command = [sys.executable, "-m", "ottla.cli.main", "server-start", "--ready-file", str(ready)]
    command += [part for one in overrides for part in ("--override", one)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    try:
        bootstrap = read_when_ready(ready, process)["bootstrap"]
        yield Place("ottla", bootstrap, f"127.0.0.1:{controller}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)


@pytest.fixture(scope="module")
def places(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Place]]:
    """Give a Kafka and an Ottla node, or a cluster, used by one module's tests only."""
    if SELECTED:
        with running_cluster(tmp_path_factory.mktemp("cluster"), SELECTED) as cluster:
            yield [Place(SELECTED, cluster.bootstrap, cluster.controllers)]
        return
    real: RealKafka = request.getfixturevalue("untouched_kafka")
    controllers = f"127.0.0.1:{real.controller_port}"
    ours: Place = request.getfixturevalue("ottla_place")
    yield [Place("kafka", real.bootstrap, controllers), ours]
