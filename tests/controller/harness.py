"""A controller of a combined node on a simulated disk, driven step by step."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from ottla.config.broker import parse_broker_config
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.loader import MetadataLoader
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.purgatory.loop import Loop
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.purgatory.work import Worker
from ottla.quota.quotas import Quotas
from ottla.server.controller.controller_node import ControllerNode
from ottla.testing.disk import SimulatedDisk
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.metadata.image import MetadataImage
    from ottla.protocol.schema import Request
    from ottla.purgatory.pending import Pending
    from ottla.storage.directory import Directory

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY_ID = Uuid(bytes(range(1, 17)))
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "data",
}


def incremental_change(
    kind: int, name: str, *changes: tuple[str, int, str | None], only_check: bool = False
) -> IncrementalAlterConfigsRequest:
    """Return a request for one resource; a change is name, operation and value."""
    struct = IncrementalAlterConfigsRequest.AlterConfigsResource
    resource = struct(
        resource_type=kind,
        resource_name=name,
        configs=[
            struct.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_check)


class HandClock:
    """Both clocks return `ms`, which the test sets."""

    def __init__(self, now_ms: int) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


def _send_nothing(node_id: int, _endpoints: object, request: object) -> Pending[Any]:
    raise AssertionError(f"a lone voter sends {request} to {node_id}")


def _none() -> None:
    """Stand in for the job of a callback."""


class Harness:
    """One node's controller; workers' jobs wait until `run_turn`."""

    def __init__(
        self,
        directory: Directory | None = None,
        *,
        cluster_id: str = CLUSTER_ID,
        directory_id: Uuid = DIRECTORY_ID,
        now_ms: int = 1_000_000,
        **properties: str,
    ) -> None:
        self.cluster_id, self.directory_id = cluster_id, directory_id
        self.disk: Any = directory if directory is not None else SimulatedDisk()
        given = {name.replace("_", "."): value for name, value in properties.items()}
        self.config = parse_broker_config({**PROPERTIES, **given})
        self.clock = HandClock(now_ms)
        self.timer = TimingWheel(now_ms)
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any, Exception | None], None]]] = []
        self.failures: list[Exception] = []
        self.broker_epoch = -1
        self.incarnation = 0
        self.flushes = 0
        self.start()

    def start(self) -> None:
        """Start a controller on the disk; nothing is committed before `run_turn`."""
        self.jobs.clear()
        self.node = ControllerNode(
            node_id=1,
            cluster_id=self.cluster_id,
            directory_id=self.directory_id,
            directory=self.disk,
            loader=MetadataLoader(),
            loop=Loop(self.clock, self.timer, Worker(self._call_soon)),
            rng=random.Random(7),
            config=self.config,
            run_in_worker=lambda job, done: self.jobs.append((job, done)),
            send=_send_nothing,
            mutation_quota=Quotas(self.config).mutations,
            on_failure=self.failures.append,
        )
        self.node.start()

    def _call_soon(self, turn: Callable[[], None]) -> None:
        self.jobs.append((_none, lambda *_: turn()))

    @property
    def image(self) -> MetadataImage:
        return self.node.image

    def run_turn(self) -> None:
        """Run the workers' jobs until there are none."""
        while self.jobs:
            job, done = self.jobs.pop(0)
            self.flushes += 1
            try:
                result = job()
            except OSError as error:
                done(None, error)
            else:
                done(result, None)

    def send(self, request: Request) -> Pending[Any]:
        """Send a request of the broker; nothing is committed before `run_turn`."""
        return self.node.apis.send(request)

    def ask(self, request: Request) -> Any:
        """Send a request, commit all records and return the response."""
        pending = self.send(request)
        self.run_turn()
        return pending.value

    def register(self, **fields: Any) -> int:
        """Register broker 1 as a new incarnation; return its epoch."""
        self.incarnation += 1
        features = [
            BrokerRegistrationRequest.Feature(
                name=name, min_supported_version=levels.low, max_supported_version=levels.high
            )
            for name, levels in SUPPORTED_FEATURES.items()
        ]
        values: dict[str, Any] = {
            "broker_id": 1,
            "cluster_id": self.cluster_id,
            "incarnation_id": Uuid(bytes([self.incarnation]) * 16),
            "listeners": [
                BrokerRegistrationRequest.Listener(
                    name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0
                )
            ],
            "features": features,
            "rack": None,
            "log_dirs": [self.directory_id],
            "previous_broker_epoch": self.broker_epoch,
            **fields,
        }
        request = BrokerRegistrationRequest(**values)
        self.broker_epoch = self.ask(request).broker_epoch
        return self.broker_epoch

    def heartbeat(self, *, fence: bool = False, stop: bool = False) -> BrokerHeartbeatResponse:
        """Send broker 1's heartbeat, caught up with the image."""
        request = BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.image.offset_and_epoch.offset,
            want_fence=fence,
            want_shut_down=stop,
        )
        answer: BrokerHeartbeatResponse = self.ask(request)
        return answer

    def bring_up(self) -> Harness:
        """Commit pending records, register the broker and unfence it."""
        self.run_turn()
        self.register()
        self.heartbeat()
        return self

    def create(
        self, name: str, partitions: int = 1, factor: int = 1, **configs: str
    ) -> CreateTopicsResponse.CreatableTopicResult:
        """Create one topic and return its result."""
        request = CreateTopicsRequest(topics=[topic(name, partitions, factor, **configs)])
        answer: CreateTopicsResponse = self.ask(request)
        return answer.topics[0]


def topic(
    name: str, partitions: int = 1, factor: int = 1, **configs: str | None
) -> CreateTopicsRequest.CreatableTopic:
    """Describe a topic to create; configs by underlined names."""
    struct = CreateTopicsRequest.CreatableTopic
    return struct(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[],
        configs=[
            struct.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def assigned_topic(name: str, *replicas: list[int]) -> CreateTopicsRequest.CreatableTopic:
    """Describe a topic with a manual assignment."""
    struct = CreateTopicsRequest.CreatableTopic
    return struct(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            struct.CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in enumerate(replicas)
        ],
        configs=[],
    )
