"""Lines and counts of denials on a running node: each attempt, and nothing that was none."""

from __future__ import annotations

import io
import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Producer
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.create_acls import CreateAclsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.schema import Struct
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from ottla.server.logging.lines import KeyValueFormatter, LimitedHandler, LineLimit
from ottla.server.requests.context import MAX_LOGGED_DENIALS
from ottla.testing.cluster import Cluster
from ottla.types import ZERO_UUID
from tests.conformance.security.cells import ROWS
from tests.server.security.test_rights import SETTINGS, logged_in, settings
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.security.cells import Row
    from tests.server.requests.untrusted_clients import Peer

TOPICS = [f"hidden-{number}" for number in range(30)]
BESIDES = 3
"""Denials of a request that names nothing: of the cluster, of its group or transactional id."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a node with topics, a group and a transaction that alice may not see."""
    with Cluster(config=SETTINGS) as running:
        with Admin(**settings(running, "root")) as admin:
            admin.create_topics(TOPICS)
            group = Acl(
                ResourceType.GROUP,
                PatternType.LITERAL,
                "m-group",
                "User:alice",
                "*",
                Operation.ALL,
                Permission.ALLOW,
            )
            assert not any(admin.create_acls([group]).values())
        root: Any = settings(running, "root")
        peer = logged_in(running, "root")
        find = FindCoordinatorRequest(key="m-group", key_type=0)
        wait_for(lambda: not peer.ask(find, 2).error_code)
        wait_for(lambda: not committed(peer))
        for number in range(5):
            with Producer(transactional_id=f"hidden-{number}", **root) as producer:
                producer.init_transactions()
        yield running


def committed(peer: Peer) -> set[int]:
    """Commit offsets of all topics for the group; return the errors."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topics = [topic(name=name, partitions=[partition]) for name in TOPICS]
    request = OffsetCommitRequest(group_id="m-group", member_id="", topics=topics)
    answer = peer.ask(request, 2)
    return {part.error_code for one in answer.topics for part in one.partitions} - {0}


@contextmanager
def written() -> Iterator[io.StringIO]:
    """Collect the lines of the authorizer as a node writes them."""
    stream = io.StringIO()
    handler = LimitedHandler(LineLimit(lambda: 5), stream)
    handler.setFormatter(KeyValueFormatter())
    logger = logging.getLogger("ottla.authorizer")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield stream
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def denied(cluster: Cluster) -> int:
    """Return how many denials the node has counted."""
    return cluster.run(lambda node: node.broker.authorizer.denied_count)  # type: ignore[union-attr]


def test_no_denial_hides_another_users(cluster: Cluster) -> None:
    """Two users of one address, several operations: a line for each within a second."""
    alice, bob = logged_in(cluster, "alice"), logged_in(cluster, "bob")
    harmless = MetadataRequest.MetadataRequestTopic(name="harmless")
    creation = CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name="*",
        resource_pattern_type=3,
        principal="User:bob",
        host="*",
        operation=2,
        permission_type=3,
    )
    with written() as lines:
        for _ in range(3):
            alice.ask(MetadataRequest(topics=[harmless]), 1)
            bob.ask(DeleteTopicsRequest(topic_names=["payments"], timeout_ms=1), 1)
            bob.ask(CreateAclsRequest(creations=[creation]), 2)
    text = lines.getvalue()
    assert text.count("User:alice is Denied operation = DESCRIBE") == 1
    assert text.count("User:bob is Denied operation = DESCRIBE from") == 1
    assert text.count("User:bob is Denied operation = ALTER from") == 1
    assert "limited_by" not in text


def test_a_request_of_many_names_has_few_lines(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Each denial is counted; what is written does not grow with the request."""
    names = [MetadataRequest.MetadataRequestTopic(name=f"hidden-{n}") for n in range(500)]
    before = denied(cluster)
    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        logged_in(cluster, "alice").ask(MetadataRequest(topics=names), 1)
    assert denied(cluster) - before == 500
    # a loaded machine adds lines of other loggers, on slow requests and turns
    lines = [line.getMessage() for line in caplog.records if line.name == "ottla.authorizer"]
    assert len(lines) == MAX_LOGGED_DENIALS + 1
    assert lines[-1].endswith(
        "on all further resources of type = Topic that it may not use for request = Metadata; they "
        "are counted, not listed"
    )


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=None), 12),
        (MetadataRequest(topics=[]), 0),
        (DescribeTopicPartitionsRequest(topics=[], response_partition_limit=100), 0),
    ],
)
def test_a_list_of_all_is_no_attempt(cluster: Cluster, request_: Any, version: int) -> None:
    """What is left out of it is neither logged nor counted as a denial of each."""
    before = denied(cluster)
    with written() as lines:
        answer = logged_in(cluster, "alice").ask(request_, version)
    assert answer.topics == []
    assert lines.getvalue() == ""
    assert denied(cluster) == before


def _texts(value: Any) -> int:
    """Return how many names and ids a request has."""
    if isinstance(value, Struct):
        return sum(_texts(getattr(value, field.name)) for field in type(value).fields)
    if isinstance(value, list):
        return sum(map(_texts, value))
    return int(isinstance(value, str))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_denials_are_counted_by_what_a_request_names(cluster: Cluster, row: Row) -> None:
    """Not by what the node has, in whichever version of an API."""
    if "broker" not in row.listeners or row.key in {ApiKey.ENVELOPE, ApiKey.SASL_HANDSHAKE}:
        return
    for version in row.versions:
        request = row.request(ZERO_UUID, version)
        peer = logged_in(cluster, "alice")
        before = denied(cluster)
        with suppress(EOFError):  # the only answer to some denials
            peer.ask(request, version)
        assert denied(cluster) - before <= _texts(request) + BESIDES, (row.name, version)
