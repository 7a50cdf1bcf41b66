"""The commands of the classic group transcripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coordinator.group import GroupCoordinatorConfig
from ottla.coordinator.group.offsets.records import OffsetKey
from ottla.coordinator.group.shard import _RecordSerde
from ottla.errors import ErrorCode
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest
from ottla.protocol.apis.describe_groups import DescribeGroupsRequest
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.leave_group import LeaveGroupRequest
from ottla.protocol.apis.list_groups import ListGroupsRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.offset_delete import OffsetDeleteRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from ottla.purgatory.work import MAX_STEPS
from ottla.types import ZERO_UUID
from tests.coordinator.harness import World, context

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.purgatory.pending import Pending
    from ottla.types import Uuid

COMMIT_TOPIC = OffsetCommitRequest.OffsetCommitRequestTopic
FETCH_GROUP = OffsetFetchRequest.OffsetFetchRequestGroup
DELETE_TOPIC = OffsetDeleteRequest.OffsetDeleteRequestTopic


class Transcript:
    """Clients by name on one coordinator; `run` executes a command and returns its trace.

    A command is a verb, a client's name where it has one, and key=value options. The group is
    `g`, a client's member id and generation are those of its last successful answer unless said
    otherwise.
    """

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World().elect()
        self.trace: list[str] = []
        self.members: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.protocols: dict[str, str | None] = {}
        self.batch_count = 0

    def run(self, command: str) -> list[str]:
        verb, *words = command.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        self.trace = []
        getattr(self, "do_" + verb.replace("-", "_"))(*names, **options)
        self._show_log()
        return self.trace

    # ---------------------------------------------------------------- the world

    def do_new(self, **options: str) -> None:
        settings: dict[str, Any] = {key: int(value) for key, value in options.items()}
        self.world = World(GroupCoordinatorConfig(offsets_topic_num_partitions=1, **settings))
        self.world.elect()
        self.members, self.generations, self.protocols = {}, {}, {}
        self.batch_count = 0

    def do_advance(self, delay: str) -> None:
        self.world.advance(int(delay))

    def do_resign(self) -> None:
        self.world.resign()

    def do_elect(self) -> None:
        self.world.log.slice_bytes = None
        self.world.elect()

    def do_load_slowly(self) -> None:
        self.world.log.slice_bytes = 1
        self.world.leader_epoch += 1
        self.world.loop.worker.max_steps = 10
        self.world.coordinator.on_elected(0, self.world.leader_epoch)
        self.world.loop.worker.max_steps = MAX_STEPS

    def do_reload(self) -> None:
        self.do_resign()
        self.do_elect()

    def do_hold(self) -> None:
        self.world.log.is_holding = True

    def do_release(self) -> None:
        self.world.log.is_holding = False
        self.world.log.commit(0)

    def do_fail(self, code: str) -> None:
        self.world.log.next_error = ErrorCode[code]

    def do_delete_topic(self, name: str) -> None:
        topic_id = self.world.topics.ids.pop(name)
        self.world.coordinator.on_topics_deleted([(name, topic_id)])

    def do_create_topic(self, name: str) -> None:
        self.world.topics.ids[name] = self.world.topics.id_of(name, 2)

    # ---------------------------------------------------------------- members

    def do_join(self, client: str, **options: str) -> None:
        protocols = options.get("protocols", self._default_protocols(client))
        protocol_class = JoinGroupRequest.JoinGroupRequestProtocol
        request = JoinGroupRequest(
            group_id=options.get("group", "g"),
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "20000")),
            member_id=self._member(client, options),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocols=[
                protocol_class(name=name, metadata=self._metadata(data, options))
                for name, _, data in (part.partition(":") for part in protocols.split(","))
                if name
            ],
        )
        version = int(options.get("version", "9"))
        pending = self.world.coordinator.join_group(request, context(version, client))

        def shown(answer: Any) -> str:
            if answer.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
                key = self._key(client, options)
                self.members[key] = answer.member_id
                self.generations[key] = answer.generation_id
                self.protocols[key] = answer.protocol_name
            if answer.error_code:
                return f"{ErrorCode(answer.error_code).name} member={answer.member_id or '-'}"
            members = " ".join(
                f"{m.member_id}:{self._shown_metadata(m.metadata)}" for m in answer.members
            )
            skips = " skip-assignment" if answer.skip_assignment else ""
            return (
                f"generation={answer.generation_id} member={answer.member_id} "
                f"leader={answer.leader} protocol={answer.protocol_name} [{members}]{skips}"
            )

        self._report(f"join {client}", pending, shown)

    def do_sync(self, client: str, **options: str) -> None:
        parts = options.get("assign", "")
        assignments = [part.partition(":") for part in parts.split(",") if part]
        key = self._key(client, options)
        request = SyncGroupRequest(
            group_id=options.get("group", "g"),
            generation_id=self._generation(client, options),
            member_id=self._member(client, options),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocol_name=options.get("protocol") or self.protocols.get(key) or "range",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=self.members.get(self._key(name, options), name),
                    assignment=self._assignment(data),
                )
                for name, _, data in assignments
            ],
        )
        pending = self.world.coordinator.sync_group(request, context(5, client))
        self._report(
            f"sync {client}",
            pending,
            lambda answer: (
                ErrorCode(answer.error_code).name
                if answer.error_code
                else f"assignment={self._shown_assignment(answer.assignment) or '-'} "
                f"{answer.protocol_name}"
            ),
        )

    def do_heartbeat(self, client: str, **options: str) -> None:
        request = HeartbeatRequest(
            group_id=options.get("group", "g"),
            generation_id=self._generation(client, options),
            member_id=self._member(client, options),
            group_instance_id=options.get("instance"),
        )
        pending = self.world.coordinator.heartbeat(request, context(4, client))
        self._report(f"heartbeat {client}", pending, _code)

    def do_leave(self, *clients: str, **options: str) -> None:
        request = LeaveGroupRequest(group_id=options.get("group", "g"))
        version = int(options.get("version", "5"))
        if version <= 2:
            request.member_id = self._member(clients[0], options)
        identity = LeaveGroupRequest.MemberIdentity
        for client in clients if version >= 3 else ():
            request.members.append(identity(member_id=self._member(client, options)))
            request.members[-1].group_instance_id = options.get("instance")
        if "instances" in options:
            for instance in options["instances"].split(","):
                request.members.append(identity(member_id="", group_instance_id=instance))
        pending = self.world.coordinator.leave_group(request, context(version))

        def shown(answer: Any) -> str:
            members = " ".join(
                f"{m.member_id or m.group_instance_id}:{ErrorCode(m.error_code).name}"
                for m in answer.members
            )
            return f"{_code(answer)} [{members}]"

        self._report("leave", pending, shown)

    # ---------------------------------------------------------------- offsets

    def do_commit(self, client: str, **options: str) -> None:
        topic, partition = options.get("at", "t-0").split("-")
        version = int(options.get("version", "9"))
        request = OffsetCommitRequest(
            group_id=options.get("group", "g"),
            generation_id_or_member_epoch=self._generation(client, options),
            member_id=self._member(client, options),
            group_instance_id=options.get("instance"),
            retention_time_ms=int(options.get("retention", "-1")),
            topics=[
                COMMIT_TOPIC(
                    name=topic if version < 10 else "",
                    topic_id=self._topic_id(topic, options),
                    partitions=[
                        COMMIT_TOPIC.OffsetCommitRequestPartition(
                            partition_index=int(partition),
                            committed_offset=int(options["offset"]),
                            committed_leader_epoch=int(options.get("epoch", "-1")),
                            committed_metadata=options.get("metadata"),
                        )
                    ],
                )
            ],
        )
        pending = self.world.coordinator.offset_commit(request, context(version, client))
        self._report(
            f"commit {client}",
            pending,
            lambda answer: " ".join(
                f"{t.name}-{p.partition_index}:{ErrorCode(p.error_code).name}"
                for t in answer.topics
                for p in t.partitions
            ),
        )

    def do_fetch(self, **options: str) -> None:
        topic, partition = options.get("at", "t-0").split("-")
        version = int(options.get("version", "9"))
        named = FETCH_GROUP.OffsetFetchRequestTopics(
            name=topic if version < 10 else "",
            topic_id=(self.world.topics.topic_id(topic) or ZERO_UUID)
            if version >= 10
            else ZERO_UUID,
            partition_indexes=[int(partition)],
        )
        request = OffsetFetchRequest(
            groups=[
                FETCH_GROUP(group_id=name, topics=None if "all" in options else [named])
                for name in options.get("group", "g").split(",")
            ],
            require_stable="stable" in options,
        )
        pending = self.world.coordinator.offset_fetch(request, context(version))

        def shown(answer: Any) -> str:
            return "; ".join(
                f"{group.group_id} {_code(group)} "
                + " ".join(
                    f"{t.name}-{p.partition_index}={p.committed_offset}"
                    + (f"/{p.metadata}" if p.metadata else "")
                    + (f":{ErrorCode(p.error_code).name}" if p.error_code else "")
                    for t in group.topics
                    for p in t.partitions
                )
                for group in answer.groups
            )

        self._report("fetch", pending, shown)

    def do_delete_offsets(self, **options: str) -> None:
        topic, partition = options.get("at", "t-0").split("-")
        index = DELETE_TOPIC.OffsetDeleteRequestPartition(partition_index=int(partition))
        request = OffsetDeleteRequest(
            group_id=options.get("group", "g"),
            topics=[DELETE_TOPIC(name=topic, partitions=[index])],
        )
        pending = self.world.coordinator.offset_delete(request, context(0))
        self._report(
            "delete-offsets",
            pending,
            lambda answer: " ".join(
                [_code(answer)]
                + [
                    f"{t.name}-{p.partition_index}:{ErrorCode(p.error_code).name}"
                    for t in answer.topics
                    for p in t.partitions
                ]
            ),
        )

    # ---------------------------------------------------------------- groups

    def do_list(self, **options: str) -> None:
        request = ListGroupsRequest(
            states_filter=[s for s in options.get("states", "").split(",") if s],
            types_filter=[s for s in options.get("types", "").split(",") if s],
        )
        pending = self.world.coordinator.list_groups(request, context(5))
        self._report(
            "list",
            pending,
            lambda answer: " ".join(
                [_code(answer)]
                + [
                    f"{g.group_id}:{g.protocol_type or '-'}:{g.group_state}:{g.group_type}"
                    for g in answer.groups
                ]
            ),
        )

    def do_describe(self, **options: str) -> None:
        request = DescribeGroupsRequest(groups=options.get("group", "g").split(","))
        version = int(options.get("version", "6"))
        pending = self.world.coordinator.describe_groups(request, context(version))

        def shown(answer: Any) -> str:
            return "; ".join(
                f"{g.group_id} {_code(g)} {g.group_state} type={g.protocol_type or '-'} "
                f"protocol={g.protocol_data or '-'} "
                + " ".join(
                    f"{m.member_id}:{self._shown_metadata(m.member_metadata)}:"
                    f"{self._shown_assignment(m.member_assignment)}"
                    for m in g.members
                )
                for g in answer.groups
            ).rstrip()

        self._report("describe", pending, shown)

    def do_delete(self, **options: str) -> None:
        request = DeleteGroupsRequest(groups_names=options.get("group", "g").split(","))
        pending = self.world.coordinator.delete_groups(request, context(2))
        self._report(
            "delete",
            pending,
            lambda answer: " ".join(f"{g.group_id}:{_code(g)}" for g in answer.results),
        )

    # ---------------------------------------------------------------- inside

    @staticmethod
    def _default_protocols(client: str) -> str:
        return "range:" + client

    def _metadata(self, data: str, options: dict[str, str]) -> bytes:
        """Return a member's metadata: here any text; consumers send subscriptions."""
        return data.encode()

    def _shown_metadata(self, metadata: bytes) -> str:
        return metadata.decode()

    def _assignment(self, data: str) -> bytes:
        return data.encode()

    def _shown_assignment(self, assignment: bytes) -> str:
        return assignment.decode()

    def _shown_record(self, key: Any, value: Any) -> str:
        return _show_record(key, value)

    def _topic_id(self, topic: str, options: dict[str, str]) -> Uuid:
        topics = self.world.topics
        given = options.get("incarnation")
        known = None if given else topics.topic_id(topic)
        return known or topics.id_of(topic, int(given or "1"))

    def _member(self, client: str, options: dict[str, str]) -> str:
        given = options.get("member")
        if given == "-":
            return ""
        return self.members.get(self._key(client, options), "") if given is None else given

    def _generation(self, client: str, options: dict[str, str]) -> int:
        given = options.get("generation")
        return self.generations.get(self._key(client, options), -1) if given is None else int(given)

    @staticmethod
    def _key(client: str, options: dict[str, str]) -> str:
        return f"{options.get('group', 'g')}/{client}"

    def _report(self, what: str, pending: Pending[Any], shown: Callable[[Any], str]) -> None:
        def finished(done: Pending[Any]) -> None:
            self.trace.append(f"{what}: {shown(done.value)}")

        while not pending.done and what.startswith(("list", "describe")):
            self.world.advance(1)  # questions are answered in turns, and wait for no one
        if not pending.done:
            self.trace.append(f"{what}: waits")
        pending.on_done(finished)

    def _show_log(self) -> None:
        batches = self.world.log.record_batches(0)
        serde = _RecordSerde()
        for batch in batches[self.batch_count :]:
            for record in batch.records():
                assert record.key is not None
                decoded = serde.decode(record.key, record.value)
                assert decoded is not None
                self.trace.append(
                    f"log {record.offset}: {self._shown_record(decoded.key, decoded.value)}"
                )
        self.batch_count = len(batches)


def _code(answer: Any) -> str:
    return ErrorCode(answer.error_code).name


def _show_record(key: Any, value: Any) -> str:
    if isinstance(key, OffsetKey):
        name = f"offset {key.group} {key.topic_partition}"
        return name + (" removed" if value is None else f" = {value.offset}")
    if value is None:
        return f"group {key.group} removed"
    members = " ".join(f"{m.member_id}:{m.assignment.decode()}" for m in value.members)
    return (
        f"group {key.group} generation={value.generation} protocol={value.protocol} "
        f"leader={value.leader} [{members}]"
    )
