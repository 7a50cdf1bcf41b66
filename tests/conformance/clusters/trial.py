"""A cluster with its workloads: start, progress after each fault, and the check of everything.

Kafka: none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.conformance.clusters import chain as copies
from tests.conformance.clusters import load as queue
from tests.conformance.clusters import registers
from tests.conformance.clusters.chain import Chain
from tests.conformance.clusters.history import (
    Lost,
    check_acknowledged,
    check_consumer,
    check_order,
    check_replicas,
)
from tests.conformance.clusters.load import CLIENT, Load, wait_for
from tests.conformance.clusters.registers import Registers, check_registers
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.clusters.nodes import Cluster

TOPICS = {queue.TOPIC: queue.PARTITIONS, registers.TOPIC: registers.PARTITIONS}


class Trial:
    """Both workloads on one cluster, and with a directory for it a chain of transactions."""

    def __init__(
        self, cluster: Cluster, *, rate: int, seed: int, chain_directory: Path | None = None
    ) -> None:
        self.cluster = cluster
        self.chain = chain_directory and Chain(cluster.bootstrap, chain_directory)
        copied = copies.TOPICS if self.chain else ()
        self._topics = TOPICS | dict.fromkeys(copied, queue.PARTITIONS)
        self.load = Load(cluster.bootstrap, rate)
        self.registers = Registers(cluster.bootstrap, seed)
        self._admin = AdminClient(CLIENT | {"bootstrap.servers": cluster.bootstrap})

    def start(self) -> None:
        """Start the nodes, which are formatted; make the topics; start the workloads."""
        self.cluster.start()
        self.wait_until_ready()
        wait_for(self._all_brokers_are_there, "a broker is not registered")
        replicas, safe = len(self.cluster.brokers), {"min.insync.replicas": "2"}
        topics = [
            NewTopic(name, count, replicas, config=safe) for name, count in self._topics.items()
        ]
        for future in self._admin.create_topics(topics).values():
            future.result(WAIT_S)
        wait_for(self.is_in_sync, "replicas do not come in sync")
        self.load.start()
        self.registers.start()
        if self.chain:
            self.chain.start()

    def wait_until_ready(self) -> None:
        """Wait until all nodes serve."""

        def are_ready() -> bool:
            self.cluster.check()
            return all(node.is_ready for node in self.cluster.nodes)

        wait_for(are_ready, "a node does not serve")

    def _all_brokers_are_there(self) -> bool:
        try:
            return len(self._admin.list_topics(timeout=5).brokers) == len(self.cluster.brokers)
        except KafkaException:
            return False

    def wait_for_progress(self, done: str) -> float:
        """Wait until each partition has acknowledged a record that was sent after the fault."""
        load, first = self.load, len(self.load.sent)
        before = dict(load.acknowledged)
        missing = set(range(queue.PARTITIONS))

        def progresses() -> bool:
            self.cluster.check()
            for partition in list(missing):
                if load.acknowledged[partition] > before.get(partition, 0) and any(
                    one.offset is not None and one.partition == partition
                    for one in load.sent[first:]
                ):
                    missing.discard(partition)
            return not missing

        try:
            seconds = wait_for(progresses, "not every partition acknowledges records")
        except Lost as lost:
            raise Lost(f"{lost} after {done}: {sorted(missing)}") from None
        if load.problem:
            raise Lost(f"{load.problem}, after {done}")
        if self.chain:
            sent = dict(load.acknowledged)
            seconds += self.chain.wait_for(sent, f"after {done}")
        return seconds

    def check(self) -> dict[str, Any]:
        """Wait until all replicas are in sync, then stop and check everything."""
        self.wait_until_ready()
        self.load.stop_producer()
        self.registers.stop()
        wait_for(self.is_in_sync, "replicas do not come in sync")
        logs = self.load.read_all()
        self.load.stop_consumer(sum(len(log) for log in logs.values()))
        copied = self.chain.finish(logs) if self.chain else {}
        ends = {name: self.load.ends(name, count) for name, count in self._topics.items()} | {
            queue.TOPIC: {partition: len(log) for partition, log in logs.items()},
        }
        self.cluster.stop()
        check_acknowledged(self.load.sent, logs)
        check_order(self.load.sent, logs)
        check_consumer(self.load.seen, logs)
        batches = sum(
            check_replicas(partition, self.cluster.files_of(topic, partition), end)
            for topic, found in ends.items()
            for partition, end in found.items()
        )
        if self.load.problem:
            raise Lost(self.load.problem)
        return {
            "sent": len(self.load.sent),
            "acknowledged": self.load.acknowledged.total(),
            "found": sum(len(log) for log in logs.values()),
            "seen": len(self.load.seen),
            "batches_compared": batches,
            **check_registers(self.registers.history),
            **copied,
        }

    def is_in_sync(self) -> bool:
        """Whether each partition has all its replicas in the ISR."""
        try:
            found = self._admin.list_topics(timeout=5).topics
        except KafkaException:
            return False
        return all(
            name in found
            and len(found[name].partitions) == count
            and all(
                len(one.isrs) == len(self.cluster.brokers)
                for one in found[name].partitions.values()
            )
            for name, count in self._topics.items()
        )

    def write_history(self, path: Path) -> None:
        """Write what the clients did, one entry a line."""
        with path.open("w", encoding="utf-8") as output:
            for number, one in enumerate(list(self.load.sent)):
                output.write(json.dumps(one.line(number)) + "\n")
            for seen in list(self.load.seen):
                output.write(json.dumps({"seen": seen._asdict()}) + "\n")
            for operation in self.registers.history:
                output.write(json.dumps({"register": vars(operation)}) + "\n")
