"""Answers without a right: where Kafka looks at something else first, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin
from ottla.errors import ErrorCode
from ottla.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.apis.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from ottla.testing.cluster import Cluster
from ottla.types import Uuid
from tests.server.security.test_rights import SETTINGS, logged_in, settings
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.requests.untrusted_clients import Peer

DENIED, UNKNOWN = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
SHARE_KEY = 2
RIGHTS = (
    (ResourceType.TOPIC, "mine", Operation.WRITE),
    (ResourceType.TOPIC, "mine", Operation.READ),
    (ResourceType.TOPIC, "absent", Operation.WRITE),
    (ResourceType.TOPIC, "absent", Operation.READ),
    (ResourceType.GROUP, "mine", Operation.READ),
    (ResourceType.TRANSACTIONAL_ID, "mine", Operation.WRITE),
    (ResourceType.TRANSACTIONAL_ID, "mine-too", Operation.WRITE),
)


@pytest.fixture(scope="module")
def alice() -> Iterator[Peer]:
    """Log in as a user with some rights, on a node with a topic of hers and a hidden one."""
    with Cluster(config=SETTINGS) as running:
        with Admin(**settings(running, "root")) as admin:
            admin.create_topics(["mine", "hidden"])
            entries = [
                Acl(kind, PatternType.LITERAL, name, "User:alice", "*", operation, Permission.ALLOW)
                for kind, name, operation in RIGHTS
            ]
            assert not any(admin.create_acls(entries).values())
        peer = logged_in(running, "alice")
        wait_for(lambda: not peer.ask(FindCoordinatorRequest(key="mine", key_type=0), 2).error_code)
        yield peer


def code(answer: Any) -> ErrorCode:
    """Return the error of an answer or of a part of it."""
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize("version", range(4, 13))
def test_a_fetch_of_a_topic_without_a_name_is_denied(alice: Peer, version: int) -> None:
    """No user has a right to it."""
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[topic(topic="", partitions=[partition])],
    )
    ((found,),) = [one.partitions for one in alice.ask(request, version).responses]
    assert code(found) is DENIED


def test_a_topic_without_a_name_is_denied_in_descriptions(alice: Peer) -> None:
    """It is not looked at before the right to it."""
    unnamed = DescribeTopicPartitionsRequest.TopicRequest(name="")
    (found,) = alice.ask(DescribeTopicPartitionsRequest(topics=[unnamed]), 0).topics
    assert code(found) is DENIED


@pytest.mark.parametrize(("version", "expected"), [(1, 42), (5, 42), (6, 31)])
def test_share_keys_are_unknown_to_old_versions(alice: Peer, version: int, expected: int) -> None:
    """They are refused as such, with or without the right."""
    fields: Any = {"key": "g"} if version < 4 else {"coordinator_keys": ["g:x:0"]}
    request = FindCoordinatorRequest(key_type=SHARE_KEY, **fields)
    answer = alice.ask(request, version)
    assert (answer.error_code or answer.coordinators[0].error_code) == expected


def test_a_sync_without_its_protocol_is_refused_as_such(alice: Peer) -> None:
    """From the version on that has the field, also for a group that the client may not read."""
    request = SyncGroupRequest(group_id="hidden", generation_id=1, member_id="m", assignments=[])
    assert code(alice.ask(request, 5)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(alice.ask(request, 4)) is ErrorCode.GROUP_AUTHORIZATION_FAILED
    request.protocol_type, request.protocol_name = "consumer", "range"
    assert code(alice.ask(request, 5)) is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_offsets_of_a_hidden_group_are_refused_in_each_version(alice: Peer) -> None:
    """Version 1 has no error of the whole request: each partition has it."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="mine", partition_indexes=[0, 1])
    request = OffsetFetchRequest(group_id="hidden", topics=[topic])
    (first,) = alice.ask(request, 1).topics
    expected = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert [(one.partition_index, code(one)) for one in first.partitions] == [
        (0, expected),
        (1, expected),
    ]
    assert code(alice.ask(request, 2)) is expected


def test_refused_commits_come_first(alice: Peer) -> None:
    """As in Kafka: what is denied, what is unknown, what was done."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topics = [topic(name=name, partitions=[partition]) for name in ("mine", "hidden", "absent")]
    request = OffsetCommitRequest(group_id="mine", member_id="", topics=topics)
    answer = alice.ask(request, 2)
    assert [(one.name, code(one.partitions[0])) for one in answer.topics] == [
        ("hidden", DENIED),
        ("absent", UNKNOWN),
        ("mine", ErrorCode.NONE),
    ]


def test_refusals_of_single_items_keep_their_places(alice: Peer) -> None:
    """Where each item is answered for itself."""
    names = ["mine", "hidden", "mine-too"]
    answer = alice.ask(DescribeTransactionsRequest(transactional_ids=names), 0)
    assert [one.transactional_id for one in answer.transaction_states] == names
    assert code(answer.transaction_states[1]) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_missing_topic_is_told_to_who_may_describe_it(alice: Peer) -> None:
    """Without the right to delete it; a topic that is there is not deleted."""
    names = ["mine", "hidden", "absent"]
    request = DeleteTopicsRequest(topic_names=names, timeout_ms=1000)
    answer = alice.ask(request, 5)
    assert {one.name: code(one) for one in answer.responses} == {
        "mine": DENIED,
        "hidden": DENIED,
        "absent": UNKNOWN,
    }
    both = DeleteTopicsRequest.DeleteTopicState(name="hidden", topic_id=Uuid(bytes([1] * 16)))
    (found,) = alice.ask(DeleteTopicsRequest(topics=[both], timeout_ms=1000), 6).responses
    assert code(found) is ErrorCode.INVALID_REQUEST


def test_partitions_that_are_not_added_say_why(alice: Peer) -> None:
    """A right that is missing, a partition that is, and those that would have been added."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="mine",
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=[0, 7])
            for name in ("mine", "hidden", "absent")
        ],
    )
    answer = alice.ask(request, 3)
    codes = {
        one.name: [ErrorCode(part.partition_error_code) for part in one.results_by_partition]
        for one in answer.results_by_topic_v3_and_below
    }
    assert codes == {
        "mine": [ErrorCode.OPERATION_NOT_ATTEMPTED, UNKNOWN],
        "hidden": [DENIED, DENIED],
        "absent": [UNKNOWN, UNKNOWN],
    }
