"""The dedicated mode: one process with a worker for each flow of an `mm2.properties`.

A flow `A->B` has a worker whose producers write to B, with the three connectors. Its offsets are in
the topic `mm2-offsets.A.internal` of B, in the records of Java's MirrorMaker.

Kafka: org.apache.kafka.connect.mirror.{MirrorMaker, MirrorMakerConfig}.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.clients.admin.blocking import Admin
from ottla.clients.loops import LoopThread
from ottla.clients.table import AsyncTable
from ottla.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.config.providers import PROVIDERS
from ottla.connect.errors import ConnectException
from ottla.connect.mirror.clusters import RETRY_S, MirrorSchedule
from ottla.connect.mirror.settings import CHECKPOINT, HEARTBEAT, JAVA, SOURCE
from ottla.connect.runtime.offset_topic import OffsetTopic
from ottla.connect.runtime.pipeline import below, names_of
from ottla.connect.runtime.secrets import worker_settings
from ottla.connect.runtime.standalone import Standalone
from ottla.connect.settings import SOURCE as CONNECTOR
from ottla.errors import ClosedError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger("ottla.connect")
CONNECTORS: Final = ("MirrorSource", "MirrorHeartbeat", "MirrorCheckpoint")
_CLIENTS: Final = ("producer.", "consumer.", "admin.")
_SHARED: Final = sorted(
    name
    for name in {*ProducerConfig.keys} & {*ConsumerConfig.keys} & {*AdminConfig.keys}
    if name == "bootstrap.servers" or name.startswith(("security.", "ssl.", "sasl."))
)
"""The settings of a connection, which all clients of a cluster have."""
_WORKER: Final = (
    "offset.storage",
    "key.converter",
    "value.converter",
    "header.converter",
    "task",
    PROVIDERS,
)
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_OFFSET_PARTITIONS: Final = "25"
_TIMEOUT_S: Final = 60.0
"""Time to create and read the offsets topic, while brokers may still start."""
_START_S: Final = 120.0
"""Time for a connector's settings to be taken."""
_STOP_S: Final = 1.0
"""Time for a flow that starts at the stop; one whose target is away is not waited for."""


class Flow(NamedTuple):
    """A direction of mirroring."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


class MirrorMakerConfig:
    """The settings of a file, by flow."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        """Take the file; ConnectException if it names no clusters, or cannot be carried out."""
        self._texts = texts
        self._values = worker_settings(texts)
        """Without references, for workers; connectors keep theirs until they start."""
        self.clusters = names_of(texts.get("clusters"))
        if not self.clusters:
            raise ConnectException('Missing required configuration "clusters"')
        for alias in self.clusters:
            if "bootstrap.servers" not in self._cluster(alias, texts):
                raise ConnectException(f"{alias}.bootstrap.servers is missing")
            support = texts.get(f"{alias}.exactly.once.source.support", "disabled")
            if support.lower() != "disabled":
                name = f"{alias}.exactly.once.source.support"
                raise ConnectException(f"{name}: exactly-once sources are not there yet")

    def flows(self) -> list[Flow]:
        """Return the flows that are enabled, and those that have heartbeats only."""
        made = []
        for source in self.clusters:
            for target in self.clusters:
                flow = Flow(source, target)
                if source != target and (
                    self._is_true(f"{flow}.enabled", "false")
                    or self._is_true(
                        f"{flow}.emit.heartbeats.enabled",
                        self._texts.get("emit.heartbeats.enabled", "true"),
                    )
                ):
                    made.append(flow)
        return made

    def _is_true(self, name: str, default: str) -> bool:
        return self._texts.get(name, default).strip().lower() == "true"

    @staticmethod
    def _cluster(alias: str, texts: Mapping[str, str]) -> dict[str, str]:
        """Return a cluster's settings in a file, those of its clients included."""
        settings = below(texts, f"{alias}.")
        for source in (dict(settings), texts):
            for name in _SHARED:
                if name in source:
                    for prefix in ("", *_CLIENTS):
                        settings.setdefault(prefix + name, source[name])
        return settings

    def worker(self, flow: Flow) -> dict[str, str]:
        """Return the settings of a flow's worker."""
        settings = self._cluster(flow.target, self._values)
        for name, value in self._values.items():
            if name.startswith(_WORKER):
                settings[name] = value
        defaults = {
            "offset.storage.topic": f"mm2-offsets.{flow.source}.internal",  # with any separator
            "offset.storage.partitions": _OFFSET_PARTITIONS,
            "offset.storage.replication.factor": "3",
            "key.converter": _BYTES,
            "value.converter": _BYTES,
            "header.converter": _BYTES,
            # standalone workers require a file, which is not used with a topic
            "offset.storage.file.filename": "",
        }
        return {**defaults, **settings}

    def connector(self, flow: Flow, name: str) -> dict[str, str]:
        """Return the settings of a flow's connector."""
        known = {*SOURCE.keys, *CHECKPOINT.keys, *HEARTBEAT.keys, *CONNECTOR.keys}
        settings = {key: it for key, it in self._texts.items() if key in known}
        for side, alias in (("source", flow.source), ("target", flow.target)):
            for key, value in self._cluster(alias, self._texts).items():
                is_client = key.startswith(_CLIENTS)
                settings[f"{side}.{key}" if is_client else f"{side}.cluster.{key}"] = value
        defaults = {
            "name": f"{name}Connector",
            "connector.class": f"{JAVA}{name}Connector",
            "enabled": "false",
        }
        aliases = {"source.cluster.alias": flow.source, "target.cluster.alias": flow.target}
        return {**defaults, **settings, **aliases, **below(self._texts, f"{flow}.")}


class FlowOffsets(OffsetTopic):
    """The offsets of a flow in a topic of its target."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Create the topic if it is missing, and read it; KafkaError if that fails."""
        topic = settings["offset.storage.topic"]
        own = {name: settings[name] for name in _SHARED if name in settings}
        with Admin(config=own) as admin:
            admin.create_topic(
                topic,
                int(settings["offset.storage.partitions"]),
                int(settings["offset.storage.replication.factor"]),
                configs={"cleanup.policy": "compact"},
                if_not_exists=True,
                timeout=_TIMEOUT_S,
            )
        thread = LoopThread("ottla-mirror", lambda: ClosedError("the mirror has stopped"))
        super().__init__(thread, AsyncTable(topic, config=own, timeout=_TIMEOUT_S))
        try:
            thread.call(self._table.start())
        except BaseException:
            thread.stop()
            raise

    def close(self) -> None:
        """Close the clients."""
        self._thread.call(self._table.close())
        self._thread.stop()


class MirrorMaker:
    """The workers of all flows of a process."""

    def __init__(self, config: MirrorMakerConfig, clusters: Sequence[str] = ()) -> None:
        """Take those target clusters only that are near, by default all."""
        self._config = config
        unknown = [it for it in clusters if it not in config.clusters]
        if unknown:
            raise ConnectException(f"--clusters: unknown cluster {unknown[0]}")
        nearby = clusters or config.clusters
        self.flows = [it for it in config.flows() if it.target in nearby]
        if not self.flows:
            raise ConnectException("No source->target replication flows.")
        self._storages: list[FlowOffsets] = []
        self.workers: dict[Flow, Standalone] = {}
        self._schedule = MirrorSchedule("mirror-flows")
        self._is_stopping = False
        self._lock = threading.Lock()  # as a flow may start later, on the thread of the schedule

    def start(self) -> None:
        """Start the connectors; flows whose target is away are tried again, unless all are.

        KafkaError or ConfigErrors if a flow cannot start.
        """
        try:
            self._start_missing()
        except KafkaError as error:
            if not self.workers or not error.is_retriable:
                raise
            log.warning("not all flows can start, again in %g s: %s", RETRY_S, error)
            self._schedule.every(RETRY_S, "starting flows", self._start_missing, RETRY_S)
            self._schedule.start()

    def _start_missing(self) -> None:
        """Start the flows that can, then raise the error of one that cannot for the moment."""
        failure = None
        for flow in self.flows:
            if flow in self.workers or self._is_stopping:
                continue
            log.info("Kafka MirrorMaker starting %s", flow)
            settings = self._config.worker(flow)
            try:
                storage = FlowOffsets(settings)
            except KafkaError as error:
                if not error.is_retriable:
                    raise
                failure = error
                continue
            with self._lock:
                if self._is_stopping:
                    storage.close()
                    continue
                self._storages.append(storage)
                self._start(flow, settings, storage)
        if failure is not None:
            raise failure

    def _start(self, flow: Flow, settings: Mapping[str, str], storage: FlowOffsets) -> None:
        worker = self.workers[flow] = Standalone(settings, f"{flow}", storage)
        for name in CONNECTORS:
            config = self._config.connector(flow, name)
            worker.put(config["name"], config, may_replace=True).result(_START_S)

    def stop(self) -> None:
        """Stop the connectors, whose offsets are committed."""
        self._is_stopping = True
        self._schedule.stop(_STOP_S)
        with self._lock:
            for worker in self.workers.values():
                worker.stop()
            for storage in self._storages:
                storage.close()
