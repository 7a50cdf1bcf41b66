"""Classic groups: join, sync, heartbeat, leave, commit, fetch, describe, list, delete.

Kafka: GroupCoordinatorService, GroupMetadataManager, OffsetMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest
from ottla.protocol.apis.describe_groups import DescribeGroupsRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.leave_group import LeaveGroupRequest
from ottla.protocol.apis.list_groups import ListGroupsRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.offset_delete import OffsetDeleteRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from ottla.types import Uuid
from tests.conformance.differential.case import case

if TYPE_CHECKING:
    from tests.conformance.differential.case import Case, Fields
    from tests.conformance.differential.side import Side

E_ = ErrorCode
OTHER_ID = Uuid(b"no such topic id")
TOPIC = "committed"
# one subscription of the consumer protocol, to the topic above, with no user data
SUBSCRIPTION = b"\0\0\0\0\0\1\0\x09committed\xff\xff\xff\xff"
JOIN: dict[str, Any] = {
    "session_timeout_ms": 30_000,
    "rebalance_timeout_ms": 30_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
}

# ---------------------------------------------------------------- join


def _joining(group: str = "{}", **options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.coordinator()
        return {"group_id": group.format(at.label), **JOIN, **options}

    return fields


def _joined(at: Side, group: str, **options: Any) -> str:
    """Make a group of one stable member; return the member's id."""
    at.coordinator()
    fields = {"group_id": group, **JOIN, **options}
    first = at.ask(ApiKey.JOIN_GROUP, **fields)
    if first.error_code == E_.MEMBER_ID_REQUIRED:
        first = at.ask(ApiKey.JOIN_GROUP, **{**fields, "member_id": first.member_id})
    assert first.error_code == 0, first
    share = [{"member_id": first.member_id, "assignment": b"everything"}]
    synced = at.ask(
        ApiKey.SYNC_GROUP,
        group_id=group,
        generation_id=first.generation_id,
        member_id=first.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=share,
        group_instance_id=options.get("group_instance_id"),
    )
    assert synced.error_code == 0, synced
    return str(first.member_id)


def _member(at: Side, group: str, **options: Any) -> str:
    made: str = at.once(f"member {group}", lambda: _joined(at, group, **options))
    return made


def _second_round(at: Side, version: int) -> dict[str, Any]:
    """Join again with the id that the first round gave."""
    at.coordinator()
    group = {"group_id": at.label, **JOIN}
    first = at.ask(ApiKey.JOIN_GROUP, 4, **group)
    return group | {"member_id": first.member_id}


def _stranger(at: Side, version: int) -> dict[str, Any]:
    _member(at, "stable")
    return {"group_id": "stable", **JOIN, "member_id": "unknown"}


def _other_protocol(at: Side, version: int) -> dict[str, Any]:
    """Bring a protocol that the member who is there does not speak."""
    _member(at, "stable")
    other = [{"name": "else", "metadata": b""}]
    return {"group_id": "stable", **JOIN, "protocols": other}


def _same_again(at: Side, version: int) -> dict[str, Any]:
    """Join once more as a follower would: nothing changed, the leader rebalances."""
    group = f"again-{version}"
    return {"group_id": group, **JOIN, "member_id": _member(at, group)}


def _static(at: Side, version: int) -> dict[str, Any]:
    at.coordinator()
    return {"group_id": at.label, **JOIN, "group_instance_id": "one"}


def _static_again(at: Side, version: int) -> dict[str, Any]:
    group = f"static-again-{version}"
    _member(at, group, group_instance_id="one")
    return {"group_id": group, **JOIN, "group_instance_id": "one"}


def _fenced(at: Side, version: int) -> dict[str, Any]:
    _member(at, "static", group_instance_id="one")
    return {"group_id": "static", **JOIN, "group_instance_id": "one", "member_id": "other"}


def _static_unnamed(at: Side, version: int) -> dict[str, Any]:
    """Join as the only member of a group whose protocol has an empty name."""
    protocols = [{"name": "", "metadata": SUBSCRIPTION}]
    fields = _joining("unnamed-{}", group_instance_id="one", protocols=protocols)
    return fields(at, version)


def _join(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(JoinGroupRequest, name, fields, errors=errors, **options)


FROM_4 = (4, 99)
STATIC = (5, 99)
JOINS = [
    _join("valid, first round", _joining(), E_.MEMBER_ID_REQUIRED),
    _join("valid, second round", _second_round),
    _join("same again", _same_again),
    _join("static", _static, versions=STATIC),
    _join("static again", _static_again, versions=STATIC),
    _join("static fenced", _fenced, E_.FENCED_INSTANCE_ID, versions=STATIC),
    _join("empty group", _joining(""), E_.INVALID_GROUP_ID),
    _join("short session", _joining(session_timeout_ms=1), E_.INVALID_SESSION_TIMEOUT),
    _join("long session", _joining(session_timeout_ms=2**31 - 1), E_.INVALID_SESSION_TIMEOUT),
    _join("unknown member", _stranger, E_.UNKNOWN_MEMBER_ID),
    _join("unknown member of no group", _joining(member_id="unknown"), E_.UNKNOWN_MEMBER_ID),
    _join("other protocol", _other_protocol, E_.INCONSISTENT_GROUP_PROTOCOL),
    _join("no protocols", _joining(protocols=[]), E_.INCONSISTENT_GROUP_PROTOCOL),
    _join("no protocol type", _joining(protocol_type=""), E_.INCONSISTENT_GROUP_PROTOCOL),
    _join(
        "empty protocol name",
        _joining("empty-name-{}", protocols=[{"name": "", "metadata": SUBSCRIPTION}]),
        E_.MEMBER_ID_REQUIRED,
    ),
    _join("static, empty protocol name", _static_unnamed, versions=STATIC),
    _join("with a reason", _joining(reason="because"), E_.MEMBER_ID_REQUIRED, versions=(8, 99)),
]

# ---------------------------------------------------------------- sync, heartbeat, leave


def _as_member(group: str = "stable", generation: int = 1, **options: Any) -> Fields:
    """Return fields of the one member of a stable group."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        member = _member(at, "stable")
        usual = {"group_id": group, "generation_id": generation, "member_id": member}
        return usual | options

    return fields


def _as_static(**options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        member = _member(at, "static", group_instance_id="one")
        usual = {
            "group_id": "static",
            "generation_id": 1,
            "member_id": member,
            "group_instance_id": "one",
        }
        return usual | options

    return fields


def _to_sync(fields: Fields, kind: str | None = "consumer", name: str | None = "range") -> Fields:
    return lambda at, version: fields(at, version) | {"protocol_type": kind, "protocol_name": name}


def _sync(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(SyncGroupRequest, name, fields, errors=errors, **options)


def _beat(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(HeartbeatRequest, name, fields, errors=errors, **options)


SYNCS = [
    _sync("valid", _to_sync(_as_member())),
    _sync("without protocol", _as_member(), E_.INCONSISTENT_GROUP_PROTOCOL, versions=(5, 99)),
    _sync("static", _to_sync(_as_static()), versions=(3, 99)),
    _sync(
        "static fenced",
        _to_sync(_as_static(member_id="x")),
        E_.FENCED_INSTANCE_ID,
        versions=(3, 99),
    ),
    _sync("old generation", _to_sync(_as_member(generation=0)), E_.ILLEGAL_GENERATION),
    _sync("unknown member", _to_sync(_as_member(member_id="unknown")), E_.UNKNOWN_MEMBER_ID),
    _sync("unknown group", _to_sync(_as_member("absent")), E_.UNKNOWN_MEMBER_ID),
    _sync("empty group", _to_sync(_as_member("")), E_.INVALID_GROUP_ID),
    _sync(
        "other type",
        _to_sync(_as_member(), "connect"),
        E_.INCONSISTENT_GROUP_PROTOCOL,
        versions=(5, 99),
    ),
    _sync(
        "other name",
        _to_sync(_as_member(), "consumer", "x"),
        E_.INCONSISTENT_GROUP_PROTOCOL,
        versions=(5, 99),
    ),
]
BEATS = [
    _beat("valid", _as_member()),
    _beat("static", _as_static(), versions=(3, 99)),
    _beat("static fenced", _as_static(member_id="x"), E_.FENCED_INSTANCE_ID, versions=(3, 99)),
    _beat(
        "static unknown",
        _as_static(group_instance_id="two"),
        E_.UNKNOWN_MEMBER_ID,
        versions=(3, 99),
    ),
    _beat("old generation", _as_member(generation=0), E_.ILLEGAL_GENERATION),
    _beat("unknown member", _as_member(member_id="unknown"), E_.UNKNOWN_MEMBER_ID),
    _beat("unknown group", _as_member("absent"), E_.UNKNOWN_MEMBER_ID),
    _beat("empty group", _as_member(""), E_.INVALID_GROUP_ID),
]


def _leaving(at: Side, version: int) -> dict[str, Any]:
    group = f"left-{version}"
    member = _member(at, group)
    return {"group_id": group, "member_id": member, "members": [{"member_id": member}]}


def _left(group: str, **member: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        _member(at, "stable")
        _member(at, "static", group_instance_id="one")
        named = {"member_id": "unknown"} | member
        return {"group_id": group, "member_id": named["member_id"], "members": [named]}

    return fields


def _leave(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(LeaveGroupRequest, name, fields, errors=errors, **options)


LEAVES = [
    _leave("valid", _leaving),
    _leave("unknown member", _left("stable"), E_.UNKNOWN_MEMBER_ID),
    _leave("unknown group", _left("absent"), E_.UNKNOWN_MEMBER_ID),
    _leave("empty group", _left(""), E_.INVALID_GROUP_ID),
    _leave(
        "unknown static",
        _left("static", member_id="", group_instance_id="two"),
        E_.UNKNOWN_MEMBER_ID,
        versions=(3, 99),
    ),
    _leave(
        "static fenced",
        _left("static", group_instance_id="one"),
        E_.FENCED_INSTANCE_ID,
        versions=(3, 99),
    ),
    _leave("no members", lambda at, v: {"group_id": "stable", "members": []}, versions=(3, 99)),
]

# ---------------------------------------------------------------- offsets


def _committing(group: str = "{}", topic: str = TOPIC, **options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.coordinator()
        at.topic(TOPIC)
        partition = {"partition_index": 0, "committed_offset": 5} | options.get("partition", {})
        named = {"name": topic, "topic_id": at.topic_id(topic) or OTHER_ID}
        partitions = [partition] * options.get("times", 1)
        usual: dict[str, Any] = {
            "group_id": group.format(at.label),
            "topics": [{**named, "partitions": partitions}],
        }
        if "member" in options:
            usual["member_id"] = options["member"] or _member(at, "stable")
            usual["generation_id_or_member_epoch"] = options.get("generation", 1)
        if "instance" in options:
            usual["member_id"] = options.get("static_member") or _member(
                at, "static", group_instance_id="one"
            )
            usual["generation_id_or_member_epoch"] = 1
            usual["group_instance_id"] = options["instance"]
        return usual

    return fields


def _commit(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(OffsetCommitRequest, name, fields, errors=errors, **options)


LOST = E_.UNKNOWN_TOPIC_OR_PARTITION
COMMITS = [
    _commit("valid", _committing()),
    _commit("by a member", _committing("stable", member=None)),
    _commit("by a static member", _committing("static", instance="one"), versions=(7, 99)),
    _commit(
        "by a fenced member",
        _committing("static", instance="one", static_member="x"),
        E_.FENCED_INSTANCE_ID,
        versions=(7, 99),
    ),
    _commit("with metadata", _committing(partition={"committed_metadata": "note"})),
    _commit("null metadata", _committing(partition={"committed_metadata": None})),
    _commit(
        "long metadata",
        _committing(partition={"committed_metadata": "n" * 5000}),
        E_.OFFSET_METADATA_TOO_LARGE,
    ),
    _commit("leader epoch", _committing(partition={"committed_leader_epoch": 3})),
    _commit("negative offset", _committing(partition={"committed_offset": -5})),
    _commit("unknown topic", _committing(topic="absent"), LOST, E_.UNKNOWN_TOPIC_ID),
    _commit("unknown partition", _committing(partition={"partition_index": 9}), LOST),
    _commit("empty group", _committing("")),
    _commit("non-member to a stable group", _committing("stable"), E_.UNKNOWN_MEMBER_ID),
    _commit("unknown member", _committing("stable", member="unknown"), E_.UNKNOWN_MEMBER_ID),
    _commit(
        "old generation", _committing("stable", member=None, generation=0), E_.ILLEGAL_GENERATION
    ),
    _commit(
        "member of no group",
        _committing("absent", member="unknown"),
        E_.ILLEGAL_GENERATION,
        E_.GROUP_ID_NOT_FOUND,
    ),
    _commit("known topic, no partitions", _committing(times=0)),
    _commit("unknown topic, no partitions", _committing(topic="absent", times=0)),
    _commit("non-member, no partitions", _committing("stable", times=0)),
    _commit(
        "non-member, unknown topic, no partitions", _committing("stable", topic="absent", times=0)
    ),
    _commit("nothing", lambda at, v: {"group_id": "nothing", "topics": []}),
]


def _fetching(
    *groups: str, topic: str | None = TOPIC, partition: int = 0, **options: Any
) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        def begin() -> None:
            known = _committing("kept", partition={"committed_metadata": "m"})(at, 9)
            answer = at.ask(ApiKey.OFFSET_COMMIT, 9, **known)
            assert answer.topics[0].partitions[0].error_code == 0, answer

        at.once("kept", begin)
        if topic is None:
            topics = None
        else:
            topic_id = at.topic_id(topic) or OTHER_ID
            topics = [{"name": topic, "partition_indexes": [partition]}]
            if version >= 8:
                topics[0]["topic_id"] = topic_id
        whole = [{"group_id": name, "topics": topics, **options} for name in groups]
        return {"group_id": groups[0], "topics": topics, "groups": whole}

    return fields


def _fetch(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(OffsetFetchRequest, name, fields, errors=errors, **options)


FETCHES = [
    _fetch("valid", _fetching("kept")),
    _fetch("all topics", _fetching("kept", topic=None), versions=(2, 99)),
    _fetch("unknown group", _fetching("absent")),
    _fetch("all of an unknown group", _fetching("absent", topic=None), versions=(2, 99)),
    _fetch("empty group", _fetching("")),
    _fetch("uncommitted partition", _fetching("kept", partition=7)),
    _fetch("unknown topic", _fetching("kept", topic="absent"), E_.UNKNOWN_TOPIC_ID),
    _fetch("two groups", _fetching("kept", "absent"), versions=(8, 99)),
    _fetch(
        "stable only",
        lambda at, v: _fetching("kept")(at, v) | {"require_stable": True},
        versions=(7, 99),
    ),
    _fetch(
        "by a non-member",
        _fetching("kept", member_id="unknown", member_epoch=3),
        versions=(9, 99),
    ),
]


def _erased(group: str, topic: str = TOPIC, partition: int | None = 0) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        if group == "erased":
            at.ask(ApiKey.OFFSET_COMMIT, 9, **_committing("erased")(at, 9))
        _member(at, "stable")
        partitions = [] if partition is None else [{"partition_index": partition}]
        return {"group_id": group, "topics": [{"name": topic, "partitions": partitions}]}

    return fields


def _erase(name: str, fields: Fields, *errors: int) -> Case:
    return case(OffsetDeleteRequest, name, fields, errors=errors)


ERASURES = [
    _erase("valid", _erased("erased")),
    _erase("unknown topic", _erased("erased", "absent"), LOST),
    _erase("unknown partition", _erased("erased", TOPIC, 7), LOST),
    _erase("known topic, no partitions", _erased("erased", TOPIC, None)),
    _erase("unknown topic, no partitions", _erased("erased", "absent", None)),
    _erase(
        "unknown group, no partitions", _erased("absent", "absent", None), E_.GROUP_ID_NOT_FOUND
    ),
    _erase("unknown group", _erased("absent"), E_.GROUP_ID_NOT_FOUND),
    _erase("empty group", _erased(""), E_.INVALID_GROUP_ID),
    _erase("subscribed", _erased("stable"), E_.GROUP_SUBSCRIBED_TO_TOPIC),
]

# ---------------------------------------------------------------- find, describe, list, delete


def _found(*keys: str, kind: int = 0) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.coordinator()
        return {"key": keys[0], "coordinator_keys": list(keys), "key_type": kind}

    return fields


def _find(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(FindCoordinatorRequest, name, fields, errors=errors, **options)


def _shown(*groups: str, **options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        _member(at, "stable")
        at.ask(ApiKey.OFFSET_COMMIT, 9, **_committing("empty")(at, 9))
        return {"groups": list(groups), **options}

    return fields


def _nameless(at: Side, version: int) -> dict[str, Any]:
    """Describe the group without a name, which simple consumers may commit to."""
    at.ask(ApiKey.OFFSET_COMMIT, 9, **_committing("")(at, 9))
    return {"groups": [""]}


def _describe(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(DescribeGroupsRequest, name, fields, errors=errors, **options)


def _listed(**options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        _member(at, "stable")
        return options

    return fields


def _list(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(ListGroupsRequest, name, fields, errors=errors, **options)


def _deleted(*groups: str) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        _member(at, "stable")
        if "doomed" in groups:
            at.ask(ApiKey.OFFSET_COMMIT, 9, **_committing("doomed")(at, 9))
        return {"groups_names": list(groups)}

    return fields


def _delete(name: str, fields: Fields, *errors: int) -> Case:
    return case(DeleteGroupsRequest, name, fields, errors=errors)


FINDS = [
    _find("valid", _found("any")),
    _find("two", _found("one", "two"), versions=(4, 99)),
    _find("empty", _found("")),
    _find("unknown kind", _found("any", kind=9), E_.INVALID_REQUEST, versions=(1, 99)),
    _find("share", _found("any", kind=2), E_.INVALID_REQUEST, versions=(1, 99)),
]
DESCRIPTIONS = [
    _describe("valid", _shown("stable")),
    _describe("empty", _shown("empty")),
    _describe("unknown", _shown("absent"), E_.GROUP_ID_NOT_FOUND),
    _describe("several", _shown("stable", "empty", "absent"), E_.GROUP_ID_NOT_FOUND),
    _describe("twice the same", _shown("stable", "stable")),
    _describe("no name", _nameless),
    _describe(
        "with operations", _shown("stable", include_authorized_operations=True), versions=(3, 99)
    ),
    _describe("none", _shown()),
]
LISTS = [
    _list("valid", _listed()),
    _list("stable ones", _listed(states_filter=["Stable"]), versions=(4, 99)),
    _list("lower case", _listed(states_filter=["stable"]), versions=(4, 99)),
    _list("unknown state", _listed(states_filter=["Nope"]), versions=(4, 99)),
    _list("classic ones", _listed(types_filter=["classic"]), versions=(5, 99)),
    _list("consumer ones", _listed(types_filter=["consumer"]), versions=(5, 99)),
    _list("unknown type", _listed(types_filter=["nope"]), versions=(5, 99)),
]
DELETIONS = [
    _delete("valid", _deleted("doomed")),
    _delete("unknown", _deleted("absent"), E_.GROUP_ID_NOT_FOUND),
    _delete("not empty", _deleted("stable"), E_.NON_EMPTY_GROUP),
    _delete(
        "several", _deleted("doomed", "absent", "stable"), E_.GROUP_ID_NOT_FOUND, E_.NON_EMPTY_GROUP
    ),
    _delete("no name", _deleted(""), E_.GROUP_ID_NOT_FOUND),
    _delete("none", _deleted()),
]
CASES: list[Case] = [
    *JOINS,
    *SYNCS,
    *BEATS,
    *LEAVES,
    *COMMITS,
    *FETCHES,
    *ERASURES,
    *FINDS,
    *DESCRIPTIONS,
    *LISTS,
    *DELETIONS,
]
