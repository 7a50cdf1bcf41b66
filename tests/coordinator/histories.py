"""Random histories of the group, transaction and share coordinators, one request at a time.

Each draws its requests from what its clients could send, valid or not, with failing appends,
commits that are late, and time that passes. All state is in partition 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.group import (
    ConsumerGroupConfig,
    GroupCoordinatorConfig,
    RequestContext,
    StreamsGroupConfig,
)
from ottla.coordinator.runtime import EndTransaction
from ottla.coordinator.share.coordinator import ShareCoordinator
from ottla.coordinator.share.shard import ShareCoordinatorConfig, StateChange
from ottla.coordinator.share.state import ShareKey, StateBatch
from ottla.coordinator.transaction.decisions import EndRequest, ProducerKey
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol import codec
from ottla.protocol.apis import streams_group_heartbeat as streams_api
from ottla.protocol.apis.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest
from ottla.protocol.apis.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.leave_group import LeaveGroupRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.offset_delete import OffsetDeleteRequest
from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from ottla.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.records.consumer_protocol import ConsumerProtocolSubscription
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.types import TopicPartition, Uuid
from tests.coordinator.harness import MemoryLog, Topics, VirtualClock, loop_of
from tests.coordinator.harness import World as GroupWorld
from tests.coordinator.transaction.world import World as TransactionWorld

if TYPE_CHECKING:
    from random import Random

    from ottla.coordinator.runtime.runtime import CoordinatorRuntime

_REFUSALS: Final = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)


class History:
    """What all histories have: a log whose appends fail and whose commits are late at times."""

    release_share = 0.3
    """How likely records are committed in a step, once commits are late."""

    def __init__(self, rng: Random, log: MemoryLog) -> None:
        self.rng = rng
        self.log = log

    @property
    def runtime(self) -> CoordinatorRuntime[Any]:
        """The runtime of the live coordinator."""
        raise NotImplementedError

    def step(self) -> None:
        """Send one request, or let something happen."""
        rng, log = self.rng, self.log
        log.next_error = rng.choice(_REFUSALS) if rng.random() < 0.03 else None
        if log.is_holding and rng.random() < self.release_share:
            log.is_holding = False
            log.commit(0)
        elif rng.random() < 0.05:
            log.is_holding = True
        self.act()
        log.next_error = None

    def act(self) -> None:
        """Send one request, or let time pass."""
        raise NotImplementedError


class GroupHistory(History):
    """Members of groups of all kinds, which change their kind; offsets, staged and not."""

    def __init__(self, rng: Random) -> None:
        config = GroupCoordinatorConfig(
            offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0
        )
        self.world = world = GroupWorld(config)
        world.topics = Topics("t", "u", "r", "c")
        world.topics.counts.update(t=6, u=3, r=6, c=6)
        world.streams_config = StreamsGroupConfig(
            assignment_interval_ms=0,
            initial_rebalance_delay_ms=0,
            standby_replicas=rng.randrange(2),
        )
        world.consumer_config = ConsumerGroupConfig(assignment_interval_ms=rng.choice((0, 1000)))
        world.coordinator = world.make()
        world.elect()
        super().__init__(rng, world.log)
        self.count = 0
        self._classic: dict[tuple[str, str], tuple[str, int]] = {}
        """By group and name: the member's id and generation."""

    @property
    def runtime(self) -> CoordinatorRuntime[Any]:
        """The runtime of the live coordinator."""
        return self.world.coordinator.runtime

    def act(self) -> None:
        """Send one request, or let time pass."""
        rng = self.rng
        self.count += 1
        (act,) = rng.choices(
            (
                self._consumer,
                self._streams,
                self._share,
                self._join_classic,
                self._go_on_classic,
                self._commit,
                self._commit_in_transaction,
                self._end_transaction,
                self._delete,
                self._change_share_offsets,
                self._change_topics,
                self._fail_over,
                self._pass_time,
            ),
            weights=(28, 28, 12, 8, 12, 10, 8, 3, 8, 4, 3, 2, 4),
        )
        act()

    def _consumer(self) -> None:
        rng, coordinator = self.rng, self.world.coordinator
        group_id, name = rng.choice(("g", "g", "g", "k")), rng.choice("abcd")
        static: dict[str, Any] = {"instance_id": "i" + name} if name in "cd" else {}
        member_id = name + rng.choice("01") if static else name
        if (group_id, classic := rng.choice("xy")) in self._classic and rng.random() < 0.1:
            static = {}  # a member changes its protocol
            member_id, _ = self._classic.pop((group_id, classic))
        group = self.runtime.shard(0).consumer.find(group_id)
        known = None if group is None else group.members.get(member_id)
        kind = rng.random()
        if known is None or kind < 0.15:
            names = rng.choice((["t"], ["t", "u"], ["u"]))
            fields: dict[str, Any] = {"subscribed_topic_names": names}
            if rng.random() < 0.25:
                fields = {"subscribed_topic_names": [], "subscribed_topic_regex": "t|u"}
            fields |= {"member_epoch": 0, "rebalance_timeout_ms": 10_000, "topic_partitions": []}
        elif kind < 0.3:
            fields = {"member_epoch": rng.choice((-1, -2)) if static else -1}
        else:
            owned = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=one, partitions=list(parts))
                for one, parts in known.assigned.items()
            ]
            fields = {"member_epoch": known.member_epoch, "topic_partitions": owned}
            if rng.random() < 0.2:
                fields["subscribed_topic_names"] = rng.choice((["t"], ["t", "u"]))
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, **fields, **static
        )
        coordinator.consumer_group_heartbeat(request, _context(1))

    def _streams(self) -> None:
        rng = self.rng
        name = rng.choice("abcd")
        group = self.runtime.shard(0).streams.find("s")
        known = None if group is None else group.members.get(name)
        kind = rng.random()
        if known is None or kind < 0.1:
            fields: dict[str, Any] = {
                "member_epoch": 0,
                "rebalance_timeout_ms": 10_000,
                "topology": _topology(),
                "active_tasks": [],
                "standby_tasks": [],
                "warmup_tasks": [],
                "process_id": "p" if name in "ab" else "q",
            }
        elif kind < 0.2:
            fields = {"member_epoch": -1}
        else:
            tasks = known.assigned
            fields = {
                "member_epoch": known.member_epoch,
                "active_tasks": _task_ids(tasks.active),
                "standby_tasks": _task_ids(tasks.standby),
                "warmup_tasks": _task_ids(tasks.warmup),
            }
        request = streams_api.StreamsGroupHeartbeatRequest(
            group_id="s", endpoint_information_epoch=0, member_id=name, **fields
        )
        self.world.coordinator.streams.heartbeat(request, _context(0))

    def _share(self) -> None:
        rng = self.rng
        name = rng.choice("ab")
        group = self.runtime.shard(0).share.find("h")
        known = None if group is None else group.members.get(name)
        if known is None:
            fields: dict[str, Any] = {"member_epoch": 0, "subscribed_topic_names": ["t"]}
        elif rng.random() < 0.2:
            fields = {"member_epoch": -1}
        else:
            names = rng.choice((None, None, ["t"], ["t", "u"]))
            fields = {"member_epoch": known.member_epoch, "subscribed_topic_names": names}
        request = ShareGroupHeartbeatRequest(group_id="h", member_id=name, **fields)
        self.world.coordinator.share.heartbeat(request, _context(1))

    def _join_classic(self) -> None:
        rng = self.rng
        group_id, name = rng.choice(("g", "k", "k", "k")), rng.choice("xy")
        member_id, _ = self._classic.get((group_id, name), ("", -1))
        subscription = ConsumerProtocolSubscription(topics=["t"], user_data=None)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(
            name="range", metadata=b"\0\0" + codec.to_bytes(subscription, 0)
        )
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )

        def joined(done: Any) -> None:
            if done.error is None and done.value.member_id:
                self._classic[group_id, name] = done.value.member_id, done.value.generation_id
            else:
                self._classic.pop((group_id, name), None)

        self.world.coordinator.join_group(request, _context(9)).on_done(joined)

    def _go_on_classic(self) -> None:
        if not self._classic:
            return
        group_id, name = self.rng.choice(list(self._classic))
        member_id, generation = self._classic[group_id, name]
        kind = self.rng.random()
        if kind < 0.3:
            beat = HeartbeatRequest(
                group_id=group_id, generation_id=generation, member_id=member_id
            )
            self.world.coordinator.heartbeat(beat, _context(4))
            return
        if kind < 0.5:
            del self._classic[group_id, name]
            identity = LeaveGroupRequest.MemberIdentity(member_id=member_id)
            leave = LeaveGroupRequest(group_id=group_id, members=[identity])
            self.world.coordinator.leave_group(leave, _context(5))
            return
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
        self.world.coordinator.sync_group(request, _context(5))

    def _commit(self) -> None:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        part = topic.OffsetCommitRequestPartition(
            partition_index=self.rng.randrange(2),
            committed_offset=self.count,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        request = OffsetCommitRequest(
            group_id=self._group_with_offsets(),
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[topic(name="t", partitions=[part])],
        )
        self.world.coordinator.offset_commit(request, _context(2))

    def _commit_in_transaction(self) -> None:
        producer_id = self.rng.randrange(1, 4)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        part = topic.TxnOffsetCommitRequestPartition(
            partition_index=self.rng.randrange(2),
            committed_offset=self.count,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        request = TxnOffsetCommitRequest(
            transactional_id=f"x{producer_id}",
            group_id=self._group_with_offsets(),
            producer_id=producer_id,
            producer_epoch=0,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[topic(name="t", partitions=[part])],
        )
        self.world.coordinator.txn_offset_commit(request, _context(3))

    def _group_with_offsets(self) -> str:
        return self.rng.choice(("o", "o", "o", "k", "g", "s"))

    def _end_transaction(self) -> None:
        end = EndTransaction(self.rng.randrange(1, 4), 0, 0, self.rng.random() < 0.6, 0)
        self.runtime.end_transaction(0, end)

    def _delete(self) -> None:
        rng, coordinator = self.rng, self.world.coordinator
        if rng.random() < 0.5:
            group_id = rng.choice(("o", "g", "k", "s", "h"))
            coordinator.delete_groups(DeleteGroupsRequest(groups_names=[group_id]), _context(2))
            return
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        part = topic.OffsetDeleteRequestPartition(partition_index=rng.randrange(2))
        request = OffsetDeleteRequest(
            group_id=self._group_with_offsets(), topics=[topic(name="t", partitions=[part])]
        )
        coordinator.offset_delete(request, _context(0))

    def _change_share_offsets(self) -> None:
        rng, requests = self.rng, self.world.coordinator.share_offsets
        group_id, name = rng.choice(("h", "h", "k")), rng.choice("tu")
        if rng.random() < 0.4:
            deleted = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
            requests.delete(
                DeleteShareGroupOffsetsRequest(group_id=group_id, topics=[deleted(topic_name=name)])
            )
            return
        topic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        part = topic.AlterShareGroupOffsetsRequestPartition(
            partition_index=rng.randrange(2), start_offset=self.count
        )
        requests.alter(
            AlterShareGroupOffsetsRequest(
                group_id=group_id, topics=[topic(topic_name=name, partitions=[part])]
            )
        )

    def _change_topics(self) -> None:
        topics, name = self.world.topics, self.rng.choice("tu")
        topics.counts[name] += 1
        self.world.coordinator.on_topics_changed([name])

    def _fail_over(self) -> None:
        """Let the coordinator begin again with what its log has."""
        self.log.is_holding = False
        self.log.commit(0)
        self.world.resign()
        self.world.elect()

    def _pass_time(self) -> None:
        self.world.advance(self.rng.choice((1, 100, 1001, 11_000, 46_000)))


def _context(version: int) -> RequestContext:
    return RequestContext("client", "/127.0.0.1", version)


def _task_ids(tasks: Any) -> list[streams_api.TaskIds]:
    return [
        streams_api.TaskIds(subtopology_id=key, partitions=list(partitions))
        for key, partitions in tasks.items()
    ]


def _topology() -> streams_api.StreamsGroupHeartbeatRequest.Topology:
    """Return a topology that writes r from t, and counts from r with the changelog c."""
    kind = streams_api.StreamsGroupHeartbeatRequest.Topology
    empty: dict[str, Any] = {
        "source_topics": [],
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
    }
    first = {**empty, "source_topics": ["t"], "repartition_sink_topics": ["r"]}
    second = {
        **empty,
        "repartition_source_topics": [_topic("r")],
        "state_changelog_topics": [_topic("c")],
    }
    return kind(
        epoch=0,
        subtopologies=[
            kind.Subtopology(subtopology_id="0", **first),
            kind.Subtopology(subtopology_id="1", **second),
        ],
    )


def _topic(name: str) -> streams_api.TopicInfo:
    return streams_api.TopicInfo(name=name, partitions=0, replication_factor=0, topic_configs=[])


class TransactionHistory(History):
    """Producers of both transaction versions; answers with markers that are late or refusals.

    Commits are late for longer than a write waits.
    """

    release_share = 0.15

    def __init__(self, rng: Random) -> None:
        self.world = TransactionWorld()
        self.world.version = rng.choice((1, 2))
        self.world.elect()
        super().__init__(rng, self.world.log)
        self._producers: dict[str, ProducerKey] = {}
        self._written: set[tuple[int, TopicPartition]] = set()
        """The partitions, by producer id, that have the marker of a decided transaction."""

    @property
    def runtime(self) -> CoordinatorRuntime[Any]:
        """The runtime of the live coordinator."""
        return self.world.coordinator.runtime

    def step(self) -> None:
        """Check that a transaction is complete only when all its markers are written."""
        before = dict(self.runtime.shard(0).transactions)
        undecided = {one.producer_id for one in before.values() if not one.state.is_prepared}
        self._written = {one for one in self._written if one[0] not in undecided}
        super().step()
        for name, after in self.runtime.shard(0).transactions.items():
            known = before.get(name)
            if known is None or known.state.is_complete or not after.state.is_complete:
                continue
            needed = {(known.producer_id, one) for one in known.partitions}
            assert needed <= self._written, f"{name} is complete without {needed - self._written}"

    def act(self) -> None:
        """Send one request, answer one, or let time pass."""
        rng, world = self.rng, self.world
        name = rng.choice("aaab")
        producer = self._producers.get(name)
        kind = rng.random()
        client_version = 2 if world.version == 2 else 0
        if producer is None or kind < 0.1:
            found = world.coordinator.init_producer_id(name, 60_000, None)
            found.on_done(lambda done: self._initialized(name, done))
        elif kind < 0.4:
            partition = TopicPartition(rng.choice("tu"), rng.randrange(2))
            world.coordinator.add_partitions(name, producer, [partition], client_version)
        elif kind < 0.6:
            request = EndRequest(producer, rng.random() < 0.6, client_version)
            ended = world.coordinator.end_transaction(name, request)
            ended.on_done(lambda done: self._initialized(name, done))
        elif kind < 0.85:
            self._answer_markers()
        else:
            world.advance(rng.choice((1, 100, 100, 30_001, 30_001, 61_000)))

    def _initialized(self, name: str, done: Any) -> None:
        outcome = done.value
        if outcome.code is ErrorCode.NONE and outcome.producer_id >= 0:
            self._producers[name] = ProducerKey(outcome.producer_id, outcome.producer_epoch)

    def _answer_markers(self) -> None:
        if self.rng.random() < 0.2:
            self.world.write_markers(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        for request, _ in self.world.sent:
            self._written.update(
                (marker.producer_id, TopicPartition(topic.name, index))
                for marker in request.markers
                for topic in marker.topics
                for index in topic.partition_indexes
            )
        self.world.write_markers()


class ShareHistory(History):
    """Leaders of share partitions, some of them fenced, whose state is initialised again."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng, MemoryLog())
        self.clock, self.timer = VirtualClock(), TimingWheel(0)
        self.coordinator = ShareCoordinator(
            ShareCoordinatorConfig(num_partitions=1, updates_per_snapshot=rng.choice((1, 3, 10))),
            log=self.log,
            loop=loop_of(self.timer, self.clock),
            partition_count=lambda: 1,
            has_partition=lambda _topic_id, _partition: True,
            delete_before=self._delete_before,
            on_fault=self._fault,
        )
        self.log.on_high_watermark = self.coordinator.on_high_watermark
        self.coordinator.on_elected(0, 1)
        self._advance(10)

    @property
    def runtime(self) -> CoordinatorRuntime[Any]:
        """The runtime of the live coordinator."""
        return self.coordinator.runtime

    def _fault(self, error: Exception) -> None:
        if not isinstance(error, KafkaError):
            raise error

    def _delete_before(self, partition: int, offset: int) -> None:
        self.log.start_offsets[partition] = max(offset, self.log.start_offset(partition))

    def _advance(self, delay_ms: int) -> None:
        target_ms = self.clock.time_ms + delay_ms
        while (due_ms := self.timer.next_deadline()) is not None and due_ms <= target_ms:
            self.clock.time_ms = max(self.clock.time_ms, due_ms)
            self.timer.advance(self.clock.time_ms)
        self.clock.time_ms = target_ms

    def act(self) -> None:
        """Send one request, or let time pass."""
        rng, write = self.rng, self.runtime.write
        key = ShareKey("g", Uuid(bytes(15) + rng.choice((b"\1", b"\2"))), rng.randrange(2))
        epoch, kind = rng.randrange(3), rng.random()
        if kind < 0.15:
            start_offset = rng.choice((-1, rng.randrange(50)))
            write(0, lambda shard: shard.initialize(key, epoch, start_offset))
        elif kind < 0.35:
            write(0, lambda shard: shard.read(key, epoch))
        elif kind < 0.8:
            first = rng.randrange(50)
            batch = StateBatch(first, first + rng.randrange(9), rng.choice((0, 2, 4)), 1)
            start_offset = rng.choice((-1, rng.randrange(50)))
            change = StateChange(rng.randrange(-1, 3), epoch, start_offset, 0, (batch,))
            write(0, lambda shard: shard.write(key, change))
        elif kind < 0.85:
            write(0, lambda shard: shard.delete(key))
        else:
            self._advance(rng.choice((1, 100, 300_001)))
