"""Groups of the new protocols whose coordinators move to the other kind of broker and back.

Their members live on: the other coordinator continues epochs and assignments from the log of the
first one, and none of the members rejoins.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ottla import (
    AcknowledgeType,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
    SubscriptionPattern,
    TopicPartition,
)
from ottla.clients.admin.cluster import FeatureRange
from tests.conformance.clients.commands import value_of
from tests.conformance.clients.stock import CLIENTS, Program, client_or_skip
from tests.conformance.clusters.load import wait_for
from tests.conformance.mixed import takeover
from tests.conformance.mixed.takeover import FIRST, OTHER, running_pair
from tests.conformance.test_streams import WordCounts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla import ShareRecord
    from ottla.clients.admin.groups import MemberDescription
    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]
KINDS = ("consumer", "share", "streams")
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.record.lock.duration.ms": "60000",
    "group.streams.initial.rebalance.delay.ms": "0",
    **{f"group.{kind}.min.heartbeat.interval.ms": "200" for kind in KINDS},
    **{f"group.{kind}.heartbeat.interval.ms": "200" for kind in KINDS},
    **{f"group.{kind}.assignment.interval.ms": "0" for kind in KINDS},
}
INTERNAL = ("__consumer_offsets", "__share_group_state")
CONSUMER_PROTOCOL = {"STOCK_PROTOCOL": "consumer"}
JAVA, LIBRDKAFKA = CLIENTS[:2]
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"


class Coordinators(takeover.Coordinators):
    """Both coordinators, and what is done to the groups."""

    def create(self, topic: str, partitions: int) -> str:
        """Create a topic on both brokers."""
        made = self.admin.create_topics([NewTopic(topic, partitions, 2)])
        assert not isinstance(made[topic], Exception), made
        return topic

    def produce(self, topic: str, numbers: range, partitions: int = 1) -> None:
        """Write records that are numbered."""
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for one in numbers:
                producer.send(topic, value_of(one), partition=one % partitions)

    def described(self, group: str, kind: str = "consumer") -> Any:
        """Describe a group; its members in order, without its coordinator.

        Nor with topologies: Kafka counts the partitions of internal topics when it next writes.
        """
        describe: Any = {
            "consumer": self.admin.describe_groups,
            "share": self.admin.describe_share_groups,
            "streams": self.admin.describe_streams_groups,
        }[kind]
        found: Any = describe([group])[group]
        assert not isinstance(found, KafkaError), found
        if kind == "streams":
            return found._replace(
                coordinator=0, members=tuple(sorted(found.members)), subtopologies=()
            )
        return found._replace(coordinator=0, members=tuple(map(_sorted, sorted(found.members))))

    def move(self, node: int, group: str, kind: str = "consumer") -> None:
        """Let the other broker coordinate a stable group, which it describes as the first did."""
        wait_for(lambda: self.described(group, kind).state == "Stable", f"{group} is not stable")
        before = self.described(group, kind)
        self.lead(node)
        self.wait_until_described(before, group, kind)

    def wait_until_described(self, before: Any, group: str, kind: str = "consumer") -> None:
        """Wait until a group is what it was: a new leader learns what is committed from others."""
        wait_for(
            lambda: self.described(group, kind) == before,
            f"{before} is not what the other kind has of {group}",
        )

    def count_members(self, group: str) -> int:
        """Return how many members a share group has."""
        found = self.admin.describe_share_groups([group])[group]
        return 0 if isinstance(found, KafkaError) else len(found.members)

    def active_tasks(self, group: str) -> list[int]:
        """Return the number of active tasks of each member."""
        members = self.described(group, "streams").members
        return [sum(map(len, one.assignment.active.values())) for one in members]

    def read_earliest(self, group: str) -> None:
        """Let a share group begin with the first record."""
        resource = ConfigResource(ResourceType.GROUP, group)
        done = self.admin.alter_configs({resource: {"share.auto.offset.reset": "earliest"}})
        assert set(done.values()) == {None}


@pytest.fixture(scope="module")
def coordinators(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinators]:
    """Run both brokers with the internal topics."""
    with running_pair(tmp_path_factory.mktemp("groups"), kafka, SETTINGS) as (bootstrap, admin):
        made = Coordinators(bootstrap, admin, INTERNAL)
        source = TopicPartition(made.create("source", 1), 0)
        admin.alter_group_offsets("first", {source: 0})
        with ShareConsumer("source", bootstrap_servers=bootstrap, group_id="shares") as consumer:

            def are_there() -> bool:
                consumer.poll(0.2)
                found = admin.describe_topics(INTERNAL)
                return not any(isinstance(one, KafkaError) for one in found.values())

            wait_for(are_there, "no internal topics")
        yield made


def test_the_features_are_finalised_as_in_kafka(coordinators: Coordinators) -> None:
    """The cluster runs with all kinds of groups."""
    found = coordinators.admin.describe_features().finalized
    names = [f"{one}.version" for one in ("group", "share", "streams")]
    assert [found[name] for name in names] == [FeatureRange(1, 1)] * 3


@FIRST
def test_a_consumer_group_goes_on(coordinators: Coordinators, first: int) -> None:
    """Java's and librdkafka's members read on, a third one joins and leaves under the others."""
    topic, group = coordinators.create(f"read-{first}", 4), f"readers-{first}"
    joins = ("consume", coordinators.bootstrap, topic, group, "0")
    java, librdkafka = (
        client_or_skip(one)._replace(environment=CONSUMER_PROTOCOL) for one in (JAVA, LIBRDKAFKA)
    )
    coordinators.lead(first)
    with (
        Program(java, *joins) as one,
        Program(librdkafka, *joins) as other,
        Program(librdkafka, *joins) as third,
    ):
        members = [one, other, third]

        def reads(numbers: range) -> None:
            coordinators.produce(topic, numbers, 4)
            one.wait_until(lambda: sum(len(each.said()) for each in members) >= numbers.stop)

        def share(*counts: int) -> None:
            one.wait_until(
                lambda: (
                    sorted(len(each.assigned()) for each in members[: len(counts)])
                    == sorted(counts)
                )
            )

        share(1, 1, 2)
        reads(range(40))
        coordinators.move(OTHER[first], group)
        reads(range(40, 80))
        third.leave()
        share(2, 2)
        reads(range(80, 120))
        coordinators.move(first, group)
        reads(range(120, 160))
        said = [number for each in members for number in each.numbers()]
        assert sorted(said) == list(range(160))
        for each in (one, other):
            each.leave()
    committed = coordinators.admin.list_group_offsets(group)
    assert {part: one.offset for part, one in committed.items() if one is not None} == {
        TopicPartition(topic, index): 40 for index in range(4)
    }


@FIRST
def test_static_members_and_patterns_are_taken_over(coordinators: Coordinators, first: int) -> None:
    """A static member comes back under the other kind, which assigns it a new topic."""
    prefix, group = f"pattern-{first}", f"static-{first}"
    topics = [coordinators.create(f"{prefix}-a", 2)]
    settings: Any = {
        "bootstrap_servers": coordinators.bootstrap,
        "group_id": group,
        "group_protocol": "consumer",
        "group_instance_id": "one",
        "auto_offset_reset": "earliest",
        "metadata_max_age_ms": 1000,
    }

    def has_all(consumer: Consumer) -> bool:
        consumer.poll(0.1)
        parts = {TopicPartition(topic, index) for topic in topics for index in range(2)}
        return set(consumer.assignment) == parts

    coordinators.lead(first)
    with Consumer(**settings) as consumer:
        consumer.subscribe(pattern=SubscriptionPattern(f"{prefix}-.*"))
        wait_for(lambda: has_all(consumer), "the pattern assigns nothing")
    before = coordinators.described(group)
    coordinators.lead(OTHER[first])
    coordinators.wait_until_described(before, group)
    topics.append(coordinators.create(f"{prefix}-b", 2))
    with Consumer(**settings) as consumer:
        consumer.subscribe(pattern=SubscriptionPattern(f"{prefix}-.*"))
        wait_for(lambda: has_all(consumer), "the new topic is not assigned")
        coordinators.move(first, group)
        topics.append(coordinators.create(f"{prefix}-c", 2))
        wait_for(lambda: has_all(consumer), "the newest topic is not assigned")


@FIRST
def test_a_share_group_goes_on(coordinators: Coordinators, kafka: Kafka, first: int) -> None:
    """Kafka's share consumer and ours share records; what one has locked, it accepts later."""
    topic, group = coordinators.create(f"shared-{first}", 1), f"sharing-{first}"
    coordinators.read_earliest(group)
    coordinators.lead(first, topic)
    settings: Any = {"bootstrap_servers": coordinators.bootstrap, "group_id": group}
    with (
        _console(kafka, coordinators.bootstrap, topic, group) as printed,
        ShareConsumer(topic, share_acknowledgement_mode="explicit", **settings) as ours,
    ):
        accepted: list[bytes | None] = []

        def take() -> list[Any]:
            found = ours.poll(0.2)
            for one in found:
                ours.acknowledge(one, AcknowledgeType.ACCEPT)
            accepted.extend(one.value for one in found)
            return found

        def shares(numbers: range) -> None:
            for each in numbers:
                coordinators.produce(topic, range(each, each + 1))
            values = {value_of(one) for one in range(numbers.stop)}
            wait_for(lambda: {*accepted, *take(), *printed} >= values, "records do not come")
            ours.commit()

        wait_for(
            lambda: not take() and coordinators.count_members(group) == 2, "members do not join"
        )
        shares(range(10))
        coordinators.move(OTHER[first], group, "share")
        shares(range(10, 20))
        coordinators.lead(OTHER[first], topic)
        shares(range(20, 30))
        coordinators.move(first, group, "share")
        shares(range(30, 40))
    assert Counter([*accepted, *printed]) == Counter(value_of(one) for one in range(40))
    offsets = coordinators.admin.list_share_group_offsets(group)
    found = offsets[TopicPartition(topic, 0)]
    assert not isinstance(found, KafkaError)
    assert found is not None
    assert found.lag == 0


@FIRST
def test_undecided_records_of_a_share_group_are_taken_over(
    coordinators: Coordinators, first: int
) -> None:
    """Deliveries that one kind has stored are counted on by the other."""
    topic, group = coordinators.create(f"undecided-{first}", 1), f"undecided-{first}"
    coordinators.read_earliest(group)
    coordinators.lead(first, topic)
    coordinators.produce(topic, range(6))
    settings: Any = {"bootstrap_servers": coordinators.bootstrap, "group_id": group}
    accept, release = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
    undecided = dict.fromkeys(range(6), 1)
    for accepted, node in ((4, OTHER[first]), (2, first), (0, OTHER[first])):
        with ShareConsumer(topic, share_acknowledgement_mode="explicit", **settings) as consumer:
            records = _polled(consumer)
            assert {one.offset: one.delivery_count for one in records} == undecided
            for one in records:
                consumer.acknowledge(one, accept if one.offset == accepted else release)
            assert consumer.commit() == {TopicPartition(topic, 0): None}
        undecided = {one: count + 1 for one, count in undecided.items() if one != accepted}
        coordinators.lead(node, topic)


@FIRST
def test_a_streams_group_goes_on(
    coordinators: Coordinators, kafka: Kafka, tmp_path: Path, first: int
) -> None:
    """Java's Streams client counts on; an instance joins and leaves under the other kind."""
    lines, totals = coordinators.create(f"lines-{first}", 4), coordinators.create(f"sum-{first}", 1)
    group, words = f"count-{first}", ["to", "be", "or", "not", "to", "be"]
    counts = WordCounts(
        kafka,
        coordinators.bootstrap,
        tmp_path,
        **{"input": lines, "output": totals, "application.id": group},
        **{"group.protocol": "streams", "processing.guarantee": "exactly_once_v2"},
    )

    def count(times: int) -> None:
        counts.send(*words)
        counts.wait_for(Counter(words * times))

    coordinators.lead(first)
    with counts.instance("first"):
        count(1)
        coordinators.move(OTHER[first], group, "streams")
        count(2)
        with counts.instance("second"):
            wait_for(lambda: coordinators.active_tasks(group) == [4, 4], "tasks are not shared")
            count(3)
            coordinators.move(first, group, "streams")
            count(4)
        count(5)


def _sorted(member: MemberDescription) -> MemberDescription:
    target = member.target_assignment
    return member._replace(
        assignment=tuple(sorted(member.assignment)),
        target_assignment=target if target is None else tuple(sorted(target)),
    )


def _polled(consumer: ShareConsumer) -> list[ShareRecord]:
    """Poll until records come."""
    records: list[ShareRecord] = []

    def has_some() -> bool:
        records.extend(consumer.poll(0.2))
        return bool(records)

    wait_for(has_some, "no records come")
    return records


@contextmanager
def _console(kafka: Kafka, bootstrap: str, topic: str, group: str) -> Iterator[list[bytes]]:
    """Run Kafka's console share consumer; give the values that it prints."""
    flags = ("--bootstrap-server", bootstrap, "--topic", topic, "--group", group)
    lines: list[bytes] = []
    process = subprocess.Popen(
        kafka.command(CONSOLE, *flags), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    output = process.stdout
    reader = threading.Thread(target=lambda: lines.extend(map(bytes.rstrip, output)), daemon=True)
    reader.start()
    try:
        yield lines
    finally:
        process.terminate()
        process.wait(90)
        reader.join()
        output.close()
