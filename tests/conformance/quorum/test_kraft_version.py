"""A quorum of static voters becomes a dynamic one: Kafka's tool on both kinds of controllers.

Kafka: FeatureControlManager, KafkaRaftClient.upgradeKRaftVersion, LeaderState (KIP-853).
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.conformance.clients.node_process import read_when_ready
from tests.conformance.kafka import RealKafka
from tests.conformance.tool_pairs import ToolJvm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(200)]
OTTLA = [sys.executable, "-m", "ottla.cli.main"]
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CALLS = (
    ("features", "upgrade --feature kraft.version=1 --dry-run"),
    ("features", "upgrade --feature kraft.version=2"),
    ("features", "downgrade --feature kraft.version=0"),
    ("metadata-quorum", "describe --status"),
    ("features", "upgrade --feature kraft.version=1"),
    ("features", "upgrade --feature kraft.version=1"),
    ("features", "downgrade --feature kraft.version=0"),
    ("features", "disable --unsafe --feature kraft.version"),
    ("features", "describe"),
    ("metadata-quorum", "describe --status"),
)


@pytest.fixture(scope="module")
def tool_jvm(kafka: Kafka) -> Iterator[ToolJvm]:
    """Run Kafka's tools."""
    jvm = ToolJvm(kafka)
    yield jvm
    jvm.close()


def _static(kafka: Kafka, directory: Path) -> RealKafka:
    """Return a node that is the only static voter; it is not formatted yet."""
    directory.mkdir()
    node = RealKafka(kafka, directory, {})
    del node.properties["controller.quorum.bootstrap.servers"]
    node.properties["controller.quorum.voters"] = f"1@127.0.0.1:{node.controller_port}"
    node.write_properties()
    return node


@contextmanager
def _their_node(kafka: Kafka, directory: Path) -> Iterator[RealKafka]:
    node = _static(kafka, directory)
    words = ("format", "-t", CLUSTER_ID, "-c", str(node.properties_file), *_feature_words())
    kafka.run("kafka.tools.StorageTool", *words)
    node.start()
    try:
        yield node
    finally:
        node.stop()


def _format_ours(kafka: Kafka, directory: Path) -> RealKafka:
    node = _static(kafka, directory)
    words = ["storage", "format", "-t", CLUSTER_ID, "-c", str(node.properties_file)]
    subprocess.run([*OTTLA, *words, *_feature_words()], check=True, capture_output=True)
    return node


@contextmanager
def _our_process(node: RealKafka) -> Iterator[None]:
    """Run an Ottla node with these settings."""
    ready = node.directory / "ready.json"
    command = [*OTTLA, "server-start", str(node.properties_file), "--ready-file", str(ready)]
    with (node.directory / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        read_when_ready(ready, process)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _feature_words() -> list[str]:
    names = ("transaction", "group", "share", "streams")
    return [word for name in names for word in ("--feature", f"{name}.version=0")]


def _blanked(text: str, node: RealKafka) -> str:
    """Mask ids, ports and what moves between two calls."""
    for port in (node.port, node.controller_port):
        text = text.replace(str(port), "PORT")
    text = re.sub(r"(HighWatermark|LeaderEpoch|MaxFollowerLagTimeMs): +-?\d+", r"\1: N", text)
    text = re.sub(r"Epoch: \d+", "Epoch: N", text)
    return re.sub(r"(?<![\w-])[\w-]{22}(?![\w-])", "ID", text)


def _answers(jvm: ToolJvm, node: RealKafka) -> list[str]:
    found = []
    for tool, call in CALLS:
        said = jvm.run(tool, ["--bootstrap-server", node.bootstrap, *call.split()])
        shown = [line for line in said.out if "Feature: " not in line or "kraft.version" in line]
        lines = [tool, call, *shown, *said.err, str(said.status)]
        found.append(_blanked("\n".join(lines), node))
    return found


def _control_records(kafka: Kafka, node: RealKafka) -> list[str]:
    """Return level and voters as Kafka's tool shows them in the metadata log."""
    log = node.log_dir / "__cluster_metadata-0" / f"{0:020d}.log"
    words = ("--cluster-metadata-decoder", "--files", str(log))
    shown = kafka.run("org.apache.kafka.tools.DumpLogSegments", *words).stdout
    kinds = ("KRaftVersion", "KRaftVoters")
    return [
        _blanked(line.partition("headerKeys")[2], node)
        for line in shown.splitlines()
        if any(kind in line for kind in kinds)
    ]


def test_an_upgrade_is_answered_and_recorded_alike(
    kafka: Kafka, tool_jvm: ToolJvm, tmp_path: Path
) -> None:
    """Dry run, unknown and lower levels, the upgrade, and the records that it writes."""
    with _their_node(kafka, tmp_path / "kafka") as theirs:
        their_answers = _answers(tool_jvm, theirs)
    ours = _format_ours(kafka, tmp_path / "ottla")
    with _our_process(ours):
        our_answers = _answers(tool_jvm, ours)
    assert our_answers == their_answers
    their_records, our_records = _control_records(kafka, theirs), _control_records(kafka, ours)
    assert our_records == their_records
    assert len(our_records) == 2
    with _our_process(ours):  # controller.quorum.voters is still set
        assert _answers(tool_jvm, ours)[-2:] == their_answers[-2:]
