"""The three internal topics of a group of workers: made, checked, followed and written.

Kafka: org.apache.kafka.connect.storage.{KafkaConfigBackingStore, KafkaOffsetBackingStore,
KafkaStatusBackingStore}, org.apache.kafka.connect.util.TopicAdmin.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.admin.blocking import Admin
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.clients.loops import LoopThread
from ottla.clients.table import AsyncTable
from ottla.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.connect.distributed.records import decode, encode
from ottla.connect.distributed.settings import TOPICS
from ottla.connect.errors import ConnectException
from ottla.connect.runtime.pipeline import below
from ottla.errors import ClosedError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger("ottla.connect")
_ADMIN_TIMEOUT_S: Final = 60.0
"""Time to create and describe the topics, while brokers may still start."""
_FLUSH_S: Final = 5.0
"""Time for the last statuses to be written when the worker stops."""
_OWN_SETTINGS: Final = ("topic", "replication.factor", "partitions")


def client_settings(settings: Mapping[str, str], *tables: Any) -> dict[str, str]:
    """Return the worker's settings that clients of these kinds know."""
    known = set(tables[0].keys).intersection(*(it.keys for it in tables[1:]))
    return {name: it for name, it in settings.items() if name in known and name not in _NO_CLIENT}


# references are resolved already
_NO_CLIENT: Final = {"metric.reporters", "group.id", "client.id", "config.providers"}


def create_topics(settings: Mapping[str, str], values: Mapping[str, Any]) -> None:
    """Create the topics that are missing; ConnectException for topics that would lose data."""
    with Admin(config=client_settings(settings, AdminConfig)) as admin:
        for kind, purpose in TOPICS.items():
            name = values[f"{kind}.storage.topic"]
            of_topic = below(settings, f"{kind}.storage.")
            configs = {key: it for key, it in of_topic.items() if key not in _OWN_SETTINGS}
            admin.create_topic(
                name,
                1 if kind == "config" else values[f"{kind}.storage.partitions"],
                values[f"{kind}.storage.replication.factor"],
                configs={**configs, "cleanup.policy": "compact"},
                if_not_exists=True,
                timeout=_ADMIN_TIMEOUT_S,
            )
            setting = f"{kind}.storage.topic"
            resource = ConfigResource(ResourceType.TOPIC, name)
            policy = admin.describe_configs({resource: ["cleanup.policy"]})[resource]
            if isinstance(policy, KafkaError):
                log.warning("the cleanup.policy of %s cannot be read: %s", name, policy)
            elif policy["cleanup.policy"].value != "compact":
                raise ConnectException(_not_compacted(name, setting, purpose, policy))
            if kind == "config":
                described = admin.describe_topics([name])[name]
                if isinstance(described, KafkaError):
                    raise described
                if len(described.partitions) != 1:
                    raise ConnectException(
                        f"Topic '{name}' supplied via the '{setting}' property is required to have "
                        "a single partition in order to guarantee consistency of connector "
                        f"configurations, but found {len(described.partitions)} partitions."
                    )


def _not_compacted(name: str, setting: str, purpose: str, configs: Mapping[str, Any]) -> str:
    return (
        f"Topic '{name}' supplied via the '{setting}' property is required to have "
        f"'cleanup.policy=compact' to guarantee consistency and durability of {purpose}, but found "
        f"the topic currently has 'cleanup.policy={configs['cleanup.policy'].value}'. Continuing "
        f"would likely result in eventually losing {purpose} and problems restarting this Connect "
        f"cluster in the future. Change the '{setting}' property in the Connect worker "
        "configurations to use a topic with 'cleanup.policy=compact'."
    )


class InternalTopics:
    """The tables over the topics, on one thread; its calls wait, and come from other threads."""

    def __init__(
        self,
        settings: Mapping[str, str],
        values: Mapping[str, Any],
        *,
        on_config: Callable[[str, dict[str, Any] | None], None],
        on_config_read: Callable[[int], None],
        on_status: Callable[[str, dict[str, Any] | None], None],
    ) -> None:
        """Take who hears of records, in the order of the topics."""
        self.thread = LoopThread("ottla-connect", lambda: ClosedError("the worker has stopped"))
        config = client_settings(settings, ConsumerConfig, ProducerConfig)
        timeout_s = _ADMIN_TIMEOUT_S
        self._config = AsyncTable(
            values["config.storage.topic"],
            config=config,
            timeout=timeout_s,
            on_change=_parsed(on_config),
            on_read=lambda ends: on_config_read(ends[0]),
        )
        self._status = AsyncTable(
            values["status.storage.topic"],
            config=config,
            timeout=timeout_s,
            on_change=_parsed(on_status),
        )
        self.offsets = AsyncTable(values["offset.storage.topic"], config=config, timeout=timeout_s)
        self._statuses: queue.SimpleQueue[tuple[str, Mapping[str, Any] | None] | None]
        self._statuses = queue.SimpleQueue()
        self._writer = threading.Thread(
            target=self._write_statuses, name="ottla-connect-status", daemon=True
        )

    def start(self) -> None:
        """Read all topics to their ends, and follow them."""
        for table in (self._config, self._status, self.offsets):
            self.thread.call(table.start())
        self._writer.start()

    def write_config(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Append to the config topic, and wait until it is read back."""
        self.thread.call(self._config.write(key.encode(), encode(value)))

    def read_config(self, timeout_s: float) -> None:
        """Read the config topic to its end; whoever waits looks at what came."""
        try:
            self.thread.call(self._config.read_to_end(), timeout_s)
        except (KafkaError, TimeoutError) as error:
            log.warning("the config topic cannot be read to its end: %s", error)

    def write_status(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Append to the status topic, without waiting."""
        self._statuses.put((key, value))

    def _write_statuses(self) -> None:
        while (entry := self._statuses.get()) is not None:
            key, value = entry
            try:
                self.thread.call(self._status.write(key.encode(), encode(value)))
            except (KafkaError, TimeoutError) as error:
                log.warning("the status %s cannot be written: %s", key, error)
            except Exception:
                log.exception("the status %s cannot be written", key)  # others are

    def stop(self) -> None:
        """Write the last statuses, and close."""
        self._statuses.put(None)
        if self._writer.is_alive():
            self._writer.join(_FLUSH_S)
        self.thread.call(self._close())
        self.thread.stop()

    async def _close(self) -> None:
        tables = (self._config, self._status, self.offsets)
        await asyncio.gather(*(it.close() for it in tables))


def _parsed(
    then: Callable[[str, dict[str, Any] | None], None],
) -> Callable[[bytes, bytes | None], None]:
    """Return a listener of bytes; malformed records are logged and skipped, as in Kafka."""

    def on_change(key: bytes, value: bytes | None) -> None:
        try:
            text, parsed = key.decode(), decode(value)
        except ValueError:  # also UnicodeDecodeError
            log.warning("a record with the key %r of an internal topic is malformed", key)
        else:
            then(text, parsed)

    return on_change
