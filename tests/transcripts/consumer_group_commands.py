"""The commands of the transcripts of consumer groups, with members of both protocols."""

from __future__ import annotations

from dataclasses import replace
from struct import pack
from typing import TYPE_CHECKING, Any

from ottla.coordinator.group import ConsumerGroupConfig, GroupCoordinatorConfig
from ottla.coordinator.group.migration import conversion
from ottla.coordinator.group.offsets.records import OffsetKey
from ottla.errors import CorruptMessage, ErrorCode
from ottla.protocol import codec
from ottla.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.records.group import GroupMetadataKey
from ottla.protocol.schema import Struct
from tests.coordinator.harness import World, context
from tests.transcripts.classic_group_commands import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.types import Uuid

_SUBSCRIPTION_VERSION = 3


class ConsumerTranscript(Transcript):
    """Members of the consumer protocol, with the client's name as their member id.

    Members of the classic protocol send real subscriptions: `range:t+u` are two topics.
    """

    def __init__(self, world: World | None = None) -> None:
        if world is None:
            world = World()
            world.consumer_config = ConsumerGroupConfig(assignment_interval_ms=0)
            world.elect()
        super().__init__(world)

    def do_new(self, **options: str) -> None:
        policy = options.pop("policy", "bidirectional")
        limit = int(options.pop("consumer_max", "1000"))
        settings: dict[str, Any] = {key: int(value) for key, value in options.items()}
        self.world = World(
            GroupCoordinatorConfig(
                offsets_topic_num_partitions=1, group_consumer_migration_policy=policy, **settings
            )
        )
        self.world.consumer_config = ConsumerGroupConfig(assignment_interval_ms=0, max_size=limit)
        self.world.elect()
        self.members, self.generations, self.protocols = {}, {}, {}
        self.batch_count = 0

    def do_partitions(self, topic: str, count: str) -> None:
        self.world.topics.counts[topic] = int(count)
        self.world.coordinator.on_topics_changed([topic])

    def do_assignment_interval(self, interval_ms: str) -> None:
        self.world.consumer_config = replace(
            self.world.consumer_config, assignment_interval_ms=int(interval_ms)
        )

    def do_beat(self, client: str, **options: str) -> None:
        """Send a ConsumerGroupHeartbeat; with epoch 0 a complete one."""
        key = self._key(client, options)
        epoch = int(options.get("epoch", str(self.generations.get(key, 0))))
        is_joining = epoch == 0
        topics = options.get("topics", "t" if is_joining and "regex" not in options else None)
        owned = options.get("owned", "" if is_joining else None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.get("group", "g"),
            member_id=options.get("member", client).replace("-", "", options.get("member") == "-"),
            member_epoch=epoch,
            instance_id=options.get("instance"),
            rack_id=options.get("rack"),
            rebalance_timeout_ms=int(options.get("rebalance", "20000" if is_joining else "-1")),
            subscribed_topic_names=None if topics is None else topics.split("+"),
            subscribed_topic_regex=options.get("regex"),
            server_assignor=options.get("assignor"),
            topic_partitions=None if owned is None else self._owned(owned),
        )
        version = int(options.get("version", "1"))
        pending = self.world.coordinator.consumer_group_heartbeat(request, context(version, client))

        def shown(answer: Any) -> str:
            if answer.error_code:
                text = "" if answer.error_message is None else f" {answer.error_message}"
                return f"{ErrorCode(answer.error_code).name}{text}"
            self.generations[key] = max(0, answer.member_epoch)
            self.members[key] = answer.member_id or ""
            if answer.assignment is None:
                return f"epoch={answer.member_epoch}"
            owned = self._by_name(
                (one.topic_id, one.partitions) for one in answer.assignment.topic_partitions
            )
            return f"epoch={answer.member_epoch} [{owned}]"

        self._report(f"beat {client}", pending, shown)

    def do_describe_consumer(self, **options: str) -> None:
        request = ConsumerGroupDescribeRequest(
            group_ids=options.get("group", "g").split(","), include_authorized_operations=False
        )
        pending = self.world.coordinator.consumer_group_describe(request, context(1))

        def assigned(one: Any) -> str:
            return self._by_name((part.topic_id, part.partitions) for part in one.topic_partitions)

        def shown(answer: Any) -> str:
            return "; ".join(
                f"{g.group_id} {ErrorCode(g.error_code).name} {g.group_state or '-'} "
                f"epoch={g.group_epoch} assignment={g.assignment_epoch} {g.assignor_name or '-'} "
                + " ".join(
                    f"{m.member_id}/{m.member_epoch}/{m.member_type}/{m.instance_id or '-'}:"
                    f"{'+'.join(sorted(m.subscribed_topic_names))}:"
                    f"{m.subscribed_topic_regex or '-'}:"
                    f"{assigned(m.assignment)}=>{assigned(m.target_assignment)}"
                    for m in g.members
                )
                for g in answer.groups
            ).rstrip()

        self._report("describe-consumer", pending, shown)

    # ---------------------------------------------------------------- inside

    @staticmethod
    def _default_protocols(client: str) -> str:
        return "range:t"

    def _metadata(self, data: str, options: dict[str, str]) -> bytes:
        if "raw" in options:
            return data.encode()
        owned = _partitions(options.get("owned", ""))
        made = ConsumerProtocolSubscription(
            topics=data.split("+"),
            owned_partitions=[
                ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=indexes)
                for topic, indexes in owned.items()
            ],
        )
        version = _SUBSCRIPTION_VERSION
        return pack(">h", version) + codec.to_bytes(made, version)

    def _shown_metadata(self, metadata: bytes) -> str:
        if not metadata:
            return ""
        try:
            return "+".join(sorted(conversion.read_subscription(metadata).topics))
        except CorruptMessage:
            return metadata.decode()

    def _assignment(self, data: str) -> bytes:
        made = ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=indexes)
                for topic, indexes in _partitions(data).items()
            ]
        )
        return pack(">h", 0) + codec.to_bytes(made, 0)

    def _shown_assignment(self, assignment: bytes) -> str:
        if not assignment:
            return ""
        read = conversion.read_assignment(assignment)
        return _shown((one.topic, one.partitions) for one in read.assigned_partitions)

    def _shown_record(self, key: Any, value: Any) -> str:
        if isinstance(key, OffsetKey):
            return super()._shown_record(key, value)
        if isinstance(key, GroupMetadataKey):
            if value is None:
                return f"group {key.group} removed"
            members = " ".join(
                f"{m.member_id}:{self._shown_assignment(m.assignment)}" for m in value.members
            )
            return (
                f"group {key.group} generation={value.generation} protocol={value.protocol} "
                f"leader={value.leader} [{members}]"
            )
        return shown_record(key, value, self.world.topics.topic_name)

    def _owned(self, text: str) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(
                topic_id=self._topic_id(topic, {}), partitions=indexes
            )
            for topic, indexes in _partitions(text).items()
        ]

    def _by_name(self, partitions: Iterable[tuple[Uuid, Iterable[int]]]) -> str:
        return _shown(
            (self.world.topics.topic_name(topic_id) or "?", indexes)
            for topic_id, indexes in partitions
        )


def shown_record(key: Any, value: Any, topic_name: Any) -> str:
    """Return a record of a consumer group in one line, without times."""
    kind = type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
    name = " ".join(str(getattr(key, field)) for field in key.__slots__ if hasattr(key, field))
    if value is None:
        return f"{kind} {name} removed"
    fields = []
    for field in value.__slots__:
        shown = getattr(value, field)
        if field.endswith(("timestamp", "_tagged_fields")) or field.startswith("_"):
            continue
        if field == "version":
            continue
        fields.append(f"{field}={_shown_value(shown, topic_name)}")
    return f"{kind} {name} {' '.join(fields)}"


def _shown_value(value: Any, topic_name: Any) -> str:
    if isinstance(value, list) and value and _is_of_partitions(value[0]):
        parts = []
        for one in value:
            epochs = getattr(one, "assignment_epochs", None)
            named = [
                f"{index}@{epochs[place]}" if epochs else f"{index}"
                for place, index in enumerate(getattr(one, "partitions", ()))
            ]
            has_id = hasattr(one, "topic_id")
            name = (topic_name(one.topic_id) or "?") if has_id else one.subtopology_id
            parts.append(f"{name}-{'.'.join(sorted(named))}")
        return ",".join(sorted(parts)) or "-"
    if hasattr(value, "supported_protocols"):
        names = "+".join(one.name for one in value.supported_protocols)
        return f"{value.session_timeout_ms}/{names}"
    if isinstance(value, list):
        return "+".join(sorted(_shown_value(one, topic_name) for one in value)) or "-"
    if isinstance(value, Struct):
        fields = [name for name in vars(type(value))["__slots__"] if not name.startswith("_")]
        return ",".join(f"{one}={_shown_value(getattr(value, one), topic_name)}" for one in fields)
    return "-" if value in (None, "") else str(value)


def _is_of_partitions(value: Any) -> bool:
    has_tasks = hasattr(value, "subtopology_id") and hasattr(value, "partitions")
    return has_tasks or hasattr(value, "topic_id")


def _shown(partitions: Iterable[tuple[str, Iterable[int]]]) -> str:
    return ",".join(
        sorted(f"{topic}-{index}" for topic, indexes in partitions for index in indexes)
    )


def _partitions(text: str) -> dict[str, list[int]]:
    """Return `t-0+t-1` as partitions by topic."""
    found: dict[str, list[int]] = {}
    for part in text.split("+"):
        topic, _, index = part.rpartition("-")
        if topic:
            found.setdefault(topic, []).append(int(index))
    return found
