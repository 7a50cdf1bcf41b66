"""The commands of the transcripts of streams groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coordinator.group.streams.configuration import Status
from ottla.errors import ErrorCode
from ottla.protocol.apis import streams_group_heartbeat as api
from ottla.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest
from tests.coordinator.harness import context
from tests.transcripts.consumer_group_commands import ConsumerTranscript

if TYPE_CHECKING:
    from collections.abc import Iterable

Request = api.StreamsGroupHeartbeatRequest
Subtopology = Request.Topology.Subtopology


def _topic(name: str, partitions: int = 0) -> api.TopicInfo:
    config = api.KeyValue(key="cleanup.policy", value="compact")
    return api.TopicInfo(
        name=name, partitions=partitions, replication_factor=0, topic_configs=[config]
    )


def _subtopology(name: str, *sources: str, **fields: Any) -> Subtopology:
    lists = (
        "source_topic_regex",
        "state_changelog_topics",
        "repartition_sink_topics",
        "repartition_source_topics",
        "copartition_groups",
    )
    empty: dict[str, Any] = {one: [] for one in lists}
    return Subtopology(subtopology_id=name, source_topics=list(sources), **{**empty, **fields})


def _count(repartition: api.TopicInfo, changelog: api.TopicInfo) -> list[Subtopology]:
    return [
        _subtopology("0", "t", repartition_sink_topics=[repartition.name]),
        _subtopology(
            "1", repartition_source_topics=[repartition], state_changelog_topics=[changelog]
        ),
    ]


def _joined(*topics: str) -> list[Subtopology]:
    together = Subtopology.CopartitionGroup(
        source_topics=list(range(len(topics))), source_topic_regex=[], repartition_source_topics=[]
    )
    return [_subtopology("0", *topics, copartition_groups=[together])]


TOPOLOGIES = {
    "count": _count(_topic("r"), _topic("c")),
    "stateless": [_subtopology("0", "t")],
    "two": [_subtopology("0", "t"), _subtopology("1", "u", state_changelog_topics=[_topic("c")])],
    "missing": [_subtopology("0", "nope")],
    "joined": _joined("t", "u"),
    "unequal": _joined("t", "wide"),
    "counted": _count(_topic("r"), _topic("c", 3)),
    "other-count": _count(_topic("r", 3), _topic("c")),
    "empty": [],
}


class StreamsTranscript(ConsumerTranscript):
    """Members of streams groups, with the client's name as their member id.

    Tasks are `0:0.1+1:0`: partitions 0 and 1 of subtopology 0, and partition 0 of 1.
    """

    def do_stream(self, client: str, **options: str) -> None:
        """Send a StreamsGroupHeartbeat; with epoch 0 a complete one."""
        key = self._key(client, options)
        epoch = int(options.get("epoch", str(self.generations.get(key, 0))))
        is_joining = epoch == 0
        topology = options.get("topology", "count" if is_joining else "-")
        active = options.get("active", "" if is_joining else "-")
        others = "-" if active == "-" else ""
        endpoint, tags = options.get("endpoint"), options.get("tags")
        request = Request(
            group_id=options.get("group", "g"),
            member_id=options.get("member", client).replace("-", "", options.get("member") == "-"),
            member_epoch=epoch,
            endpoint_information_epoch=int(options.get("endpoints", "0")),
            instance_id=options.get("instance"),
            rack_id=options.get("rack"),
            rebalance_timeout_ms=int(options.get("rebalance", "20000" if is_joining else "-1")),
            topology=None
            if topology == "-"
            else Request.Topology(
                epoch=int(options.get("version", "0")), subtopologies=TOPOLOGIES[topology]
            ),
            active_tasks=_tasks(active),
            standby_tasks=_tasks(options.get("standby", others)),
            warmup_tasks=_tasks(options.get("warmup", others)),
            process_id=options.get("process", f"process-{client}" if is_joining else None),
            user_endpoint=None if endpoint is None else _endpoint(endpoint),
            client_tags=None
            if tags is None
            else [api.KeyValue(key=pair[0], value=pair[1]) for pair in _pairs(tags)],
            shutdown_application="shutdown" in options,
        )
        pending = self.world.coordinator.streams.heartbeat(request, context(0, client))

        def shown(answer: Any) -> str:
            answer = getattr(answer, "response", answer)  # without the topics to create
            if answer.error_code:
                return f"{ErrorCode(answer.error_code).name} {answer.error_message}"
            self.generations[key] = max(0, answer.member_epoch)
            text = f"{answer.member_id} epoch={answer.member_epoch}"
            if answer.active_tasks is not None:
                text += f" active={_shown(answer.active_tasks)} "
                text += f"standby={_shown(answer.standby_tasks)}/{_shown(answer.warmup_tasks)}"
            for one in answer.status or ():
                text += f" {Status(one.status_code).name}: {one.status_detail}"
            return (
                text
                + f" endpoints={answer.endpoint_information_epoch}"
                + "".join(
                    f" {one.user_endpoint.host}:{one.user_endpoint.port}="
                    f"{_places(one.active_partitions)}/{_places(one.standby_partitions)}"
                    for one in answer.partitions_by_user_endpoint or ()
                )
            )

        self._report(f"stream {client}", pending, shown)

    def do_describe_stream(self, **options: str) -> None:
        request = StreamsGroupDescribeRequest(
            group_ids=options.get("group", "g").split(","), include_authorized_operations=False
        )
        pending = self.world.coordinator.streams.describe(request)

        def shown(answer: Any) -> str:
            return " ; ".join(_described(one) for one in answer.groups)

        self._report("describe-stream", pending, shown)


def _described(group: Any) -> str:
    head = (
        f"{group.group_id} {ErrorCode(group.error_code).name} {group.error_message} "
        f"{group.group_state or '-'} epoch={group.group_epoch} assignment={group.assignment_epoch}"
    )
    topology = group.topology
    if topology is not None:
        head += f" topology={topology.epoch}" + "".join(
            f" {one.subtopology_id}:{'+'.join(one.source_topics)}:"
            f"{'+'.join(one.repartition_sink_topics)}:"
            f"{_infos(one.repartition_source_topics)}:{_infos(one.state_changelog_topics)}"
            for one in topology.subtopologies or ()
        )
    return head + "".join(
        f" {m.member_id}/{m.member_epoch}/{m.rack_id or '-'}/{m.process_id}/{m.topology_epoch}/"
        f"{m.user_endpoint and f'{m.user_endpoint.host}:{m.user_endpoint.port}'}/"
        f"{'+'.join(sorted(f'{one.key}:{one.value}' for one in m.client_tags))}/{m.is_classic}:"
        f"{_assigned(m.assignment)}=>{_assigned(m.target_assignment)}"
        for m in group.members
    )


def _infos(topics: Iterable[Any]) -> str:
    return "+".join(
        f"{one.name}x{one.partitions}({','.join(f'{c.key}:{c.value}' for c in one.topic_configs)})"
        for one in topics
    )


def _assigned(assignment: Any) -> str:
    kinds = (assignment.active_tasks, assignment.standby_tasks, assignment.warmup_tasks)
    return "/".join(map(_shown, kinds))


def _shown(tasks: Iterable[Any]) -> str:
    return "+".join(
        sorted(
            f"{one.subtopology_id}:{'.'.join(map(str, sorted(one.partitions)))}" for one in tasks
        )
    )


def _places(partitions: Iterable[Any]) -> str:
    return "+".join(
        sorted(f"{one.topic}-{'.'.join(map(str, sorted(one.partitions)))}" for one in partitions)
    )


def _tasks(text: str) -> list[api.TaskIds] | None:
    if text == "-":
        return None
    return [
        api.TaskIds(subtopology_id=name, partitions=[int(one) for one in parts.split(".")])
        for name, parts in _pairs(text)
    ]


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return `a:b+c:d` as pairs."""
    found = (one.partition(":") for one in text.split("+") if one)
    return [(key, value) for key, _, value in found]


def _endpoint(text: str) -> api.Endpoint:
    host, _, port = text.partition(":")
    return api.Endpoint(host=host, port=int(port))
