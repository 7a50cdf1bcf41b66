"""Traffic of all kinds on one node, and the model of what must be there afterwards.

Each round writes with the native clients to whichever node runs; `check` compares all that was
written in all rounds with what a node returns.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Self

from ottla import (
    AcknowledgeType,
    Admin,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from ottla.clients.admin.quotas import QuotaChange
from ottla.security.acl import Acl, Operation, PatternType, Permission
from ottla.security.acl import ResourceType as AclResourceType
from tests.conformance.share_groups import begin_at_the_start
from tests.waits import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from ottla import ConsumerRecord

PLAIN, LEDGER, TABLE, TIERED, SHARED = "plain", "ledger", "table", "tiered", "shared"
TOPICS: dict[str, tuple[int, dict[str, str | None]]] = {
    PLAIN: (3, {"segment.bytes": "1048576"}),
    LEDGER: (2, {}),
    TABLE: (
        1,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "1000",
            "max.compaction.lag.ms": "1000",
        },
    ),
    TIERED: (
        1,
        {
            "remote.storage.enable": "true",
            "segment.bytes": "1048576",
            "local.retention.bytes": "1048576",
        },
    ),
    SHARED: (1, {}),
}
GROUPS: dict[str, Literal["classic", "consumer"]] = {
    "of-members": "classic",
    "of-servers": "consumer",
}
Isolation = Literal["read_committed", "read_uncommitted"]
SHARE_GROUP = "of-shares"
USER = "reader"
ACL = Acl(
    resource_type=AclResourceType.TOPIC,
    pattern_type=PatternType.LITERAL,
    resource_name=PLAIN,
    principal=f"User:{USER}",
    host="*",
    operation=Operation.READ,
    permission=Permission.ALLOW,
)


def digest(key: bytes | None, value: bytes | None, headers: Any = ()) -> str:
    """Return a hash of a record's key, value and headers."""
    return sha256(repr((key, value, [tuple(header) for header in headers])).encode()).hexdigest()


class Traffic:
    """Clients of one node over several rounds; a context that closes what rounds left open."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._records: dict[TopicPartition, dict[int, str]] = defaultdict(dict)
        self._aborted: dict[TopicPartition, set[int]] = defaultdict(set)
        self._latest: dict[bytes, bytes | None] = {}
        self._accepted: set[int] = set()
        self._offsets: dict[tuple[str, TopicPartition], int] = {}
        self._open: list[str] = []
        self._features: Any = None
        self._open_producers = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open_producers.close()

    def prepare(self) -> None:
        """Create the topics, a user, a right and a quota."""
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            admin.create_topics(
                [
                    NewTopic(name, partitions, 1, configs=configs)
                    for name, (partitions, configs) in TOPICS.items()
                ]
            )
            begin_at_the_start(admin, SHARE_GROUP)
            assert set(admin.create_acls([ACL]).values()) == {None}
            quota = QuotaChange({"user": USER}, {"producer_byte_rate": 1e6})
            assert set(admin.alter_client_quotas([quota]).values()) == {None}
            assert admin.alter_user_scram_credentials({USER: "secret"}) == {USER: None}
            self._features = admin.describe_features().finalized

    def write(self, number: int) -> None:
        """Write a round to every topic, and leave a transaction open."""
        self._write_plain(number)
        self._write_ledger(number)
        self._write_table(number)
        self._write_shared(number)
        self._commit(number)

    def _sent(
        self, producer: Producer, topic: str, count: int, prefix: str, size: int
    ) -> list[Any]:
        partitions = TOPICS[topic][0]
        headers = [("round", prefix.encode())]
        deliveries = []
        for number in range(count):
            key, value = b"%d" % number, f"{prefix}-{number}".encode().ljust(size, b".")
            delivery = producer.send(
                topic, value, key=key, partition=number % partitions, headers=headers
            )
            deliveries.append((delivery, digest(key, value, headers)))
        producer.flush()
        return [(delivery.result(), hashed) for delivery, hashed in deliveries]

    def _note(self, sent: list[Any]) -> None:
        for metadata, hashed in sent:
            partition = TopicPartition(metadata.topic, metadata.partition)
            self._records[partition][metadata.offset] = hashed

    def _write_plain(self, number: int) -> None:
        for codec in ("none", "lz4", "zstd"):
            with Producer(bootstrap_servers=self._bootstrap, compression_type=codec) as producer:
                self._note(self._sent(producer, PLAIN, 90, f"plain-{codec}-{number}", 200))
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            self._note(self._sent(producer, TIERED, 250, f"tiered-{number}", 10_000))

    def _write_ledger(self, number: int) -> None:
        self.end_open_transactions()
        with Producer(bootstrap_servers=self._bootstrap, transactional_id="ledger") as producer:
            producer.init_transactions()
            for turn in range(4):
                producer.begin_transaction()
                sent = self._sent(producer, LEDGER, 20, f"ledger-{number}-{turn}", 100)
                self._note(sent)
                if turn % 2:
                    self._note_aborted(sent)
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
        name = f"left-{number}"
        producer = Producer(bootstrap_servers=self._bootstrap, transactional_id=name)
        self._open_producers.callback(_close, producer)
        producer.init_transactions()
        producer.begin_transaction()
        sent = self._sent(producer, LEDGER, 10, name, 100)
        self._note(sent)
        self._note_aborted(sent)
        self._open.append(name)

    def end_open_transactions(self) -> None:
        """Abort what earlier rounds left open: the next owner of a transactional id does."""
        for transactional_id in self._open:
            with Producer(
                bootstrap_servers=self._bootstrap, transactional_id=transactional_id
            ) as producer:
                producer.init_transactions()
        self._open.clear()

    def _note_aborted(self, sent: list[Any]) -> None:
        for metadata, _ in sent:
            self._aborted[TopicPartition(metadata.topic, metadata.partition)].add(metadata.offset)

    def _write_table(self, number: int) -> None:
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            for key in range(40):
                name = b"%d" % key
                value = None if (key + number) % 7 == 0 else b"value-%d-%d" % (number, key)
                producer.send(TABLE, value, key=name, partition=0)
                self._latest[name] = value

    def _write_shared(self, number: int) -> None:
        """Accept half of the records there; the others are for the next round."""
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            self._note(self._sent(producer, SHARED, 10, f"shared-{number}", 50))
        accepted: set[int] = set()
        with ShareConsumer(
            SHARED,
            bootstrap_servers=self._bootstrap,
            group_id=SHARE_GROUP,
            share_acknowledgement_mode="explicit",
        ) as consumer:
            end = time.monotonic() + 60
            while len(accepted) < 5:
                assert time.monotonic() < end, "no records come to the share group"
                for record in consumer.poll(0.5):
                    assert record.offset not in self._accepted, "a record was accepted before"
                    if len(accepted) < 5:
                        accepted.add(record.offset)
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT)
                    else:
                        consumer.acknowledge(record, AcknowledgeType.RELEASE)
                assert set(consumer.commit().values()) <= {None}
        self._accepted |= accepted

    def _commit(self, number: int) -> None:
        for group, protocol in GROUPS.items():
            with Consumer(
                PLAIN,
                bootstrap_servers=self._bootstrap,
                group_id=group,
                group_protocol=protocol,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer:
                end = time.monotonic() + 60
                while len(consumer.assignment) < TOPICS[PLAIN][0]:
                    assert time.monotonic() < end, f"group {group} does not become stable"
                    consumer.poll(0.2)
                partitions = sorted(consumer.assignment)
                for partition in partitions:
                    if known := self._offsets.get((group, partition)):
                        committed = consumer.committed([partition])[partition]
                        assert committed is not None
                        assert committed.offset == known
                offsets = {
                    partition: 10 * (number + 1) + partition.partition for partition in partitions
                }
                consumer.commit(offsets)
                self._offsets |= {(group, partition): at for partition, at in offsets.items()}

    def check(self) -> None:
        """Compare everything that all rounds wrote with what the node returns."""
        partitions = sorted(self._records)
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            assert admin.describe_features().finalized == self._features
            assert admin.describe_acls() == [ACL]
            entity = frozenset({("user", USER)})
            quotas = {
                frozenset(dict(name).items()): values
                for name, values in admin.describe_client_quotas().items()
            }
            assert quotas == {entity: {"producer_byte_rate": 1e6}}
            assert list(admin.describe_user_scram_credentials()) == [USER]
            for group in GROUPS:
                found = admin.list_group_offsets(group)
                for (name, partition), offset in self._offsets.items():
                    if name == group:
                        committed = found[partition]
                        assert not isinstance(committed, KafkaError)
                        assert committed is not None
                        assert committed.offset == offset
        for partition in partitions:
            expected = self._records[partition]
            assert self._read(partition, "read_uncommitted") == expected
        table = self._read_records(TopicPartition(TABLE, 0), "read_uncommitted")
        latest = {record.key: record.value for record in table}
        assert {key: value for key, value in latest.items() if value is not None} == {
            key: value for key, value in self._latest.items() if value is not None
        }

    def check_decided(self) -> None:
        """Compare what committed readers get, after the open transactions were ended."""
        for partition in sorted(self._records):
            expected = {
                offset: hashed
                for offset, hashed in self._records[partition].items()
                if offset not in self._aborted[partition]
            }
            assert self._read(partition, "read_committed") == expected

    def _read(self, partition: TopicPartition, isolation: Isolation) -> dict[int, str]:
        return {
            record.offset: digest(record.key, record.value, record.headers)
            for record in self._read_records(partition, isolation)
        }

    def _read_records(
        self, partition: TopicPartition, isolation: Isolation
    ) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        with Consumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            isolation_level=isolation,
        ) as consumer:
            consumer.assign([partition])
            until = consumer.end_offsets([partition])[partition]
            deadline = time.monotonic() + 60
            while consumer.position(partition) < until:
                assert time.monotonic() < deadline, f"{partition} stops before {until}"
                records += consumer.poll(timeout=1)
        return records

    def wait_until_tiered(self, tier: Path, segments: int) -> None:
        """Wait until the tier has that many segments of the tiered topic."""
        wait_for(
            lambda: len(list(tier.rglob("*.log"))) >= segments,
            limit_s=60,
            problem="segments are not copied to the tier",
        )


def _close(producer: Producer) -> None:
    with suppress(KafkaError, TimeoutError):
        producer.close(timeout=0)
