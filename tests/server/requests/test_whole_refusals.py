"""A whole request that fails is answered by every API in every version: no connection is closed."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.apis.create_acls import CreateAclsRequest
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from ottla.protocol.request_header import split_header
from ottla.server.requests.api import served_apis
from ottla.server.requests.refusals import refused
from ottla.types import Uuid
from tests.server.security.walked_requests import Named, codes_of, walk

CODE = ErrorCode.REQUEST_TIMED_OUT
ERROR = KafkaError(CODE, "too late")
NAMED = Named("name", Uuid(bytes(range(16))), "1", "/path", elements=3)
WITHOUT_CODE = {"DESCRIBE_LOG_DIRS 1 0", "DESCRIBE_LOG_DIRS 2 0"}
"""Kafka's response has none there but those of directories, which the request does not name."""


@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_every_response_carries_the_error(listener: str) -> None:
    """It is encoded in the version of the request; all of its codes are that of the error."""
    apis = served_apis(listener, unstable=True)
    for walked in walk(listener, NAMED):
        form = apis[walked.key].form
        request = form.read(split_header(memoryview(walked.frame()))[4], walked.version)
        response = form.fail(request, ERROR, walked.version)
        written: Any = form.write(response, 7, walked.version, 0)
        codes = codes_of(walked, written if isinstance(written, bytes) else b"".join(written))
        expected = set() if str(walked) in WITHOUT_CODE else {CODE}
        assert codes - {ErrorCode.NONE} == expected, str(walked)


def test_keys_are_copied_and_values_are_not() -> None:
    """Topic and partition; neither a timestamp nor an epoch of the request."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition(partition_index=3, timestamp=5, current_leader_epoch=7)
    request = ListOffsetsRequest(replica_id=-1, topics=[topic(name="t", partitions=[partition])])
    (answered,) = refused(request, ERROR, 7).topics
    (result,) = answered.partitions
    assert (answered.name, result.partition_index, result.error_code) == ("t", 3, CODE)
    assert (result.timestamp, result.offset, result.leader_epoch) == (-1, -1, -1)


def test_names_of_several_parts_are_copied() -> None:
    """The entity of a quota, but not its changes; the text goes with the code."""
    entry = AlterClientQuotasRequest.EntryData
    entity = [entry.EntityData(entity_type="user", entity_name="alice")]
    request = AlterClientQuotasRequest(entries=[entry(entity=entity, ops=[])], validate_only=False)
    (result,) = refused(request, ERROR, 1).entries
    assert [(part.entity_type, part.entity_name) for part in result.entity] == [("user", "alice")]
    assert (result.error_code, result.error_message) == (CODE, "too late")


def test_lists_in_lists_are_walked() -> None:
    """A marker's topics, whose partitions are plain numbers, by other names in the response."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name="t", partition_indexes=[1, 2])
    of_producer = marker(
        producer_id=9,
        producer_epoch=0,
        transaction_result=True,
        topics=[topic],
        coordinator_epoch=0,
    )
    (result,) = refused(WriteTxnMarkersRequest(markers=[of_producer]), ERROR, 1).markers
    assert result.producer_id == 9
    partitions = [(one.partition_index, one.error_code) for one in result.topics[0].partitions]
    assert partitions == [(1, CODE), (2, CODE)]


def test_the_outermost_code_counts_unless_kafka_names_items_as_well() -> None:
    """ElectLeaders has both from version 1 on, by its declaration."""
    topics = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
    request = ElectLeadersRequest(topic_partitions=topics)
    assert refused(request, ERROR, 1).replica_election_results == []
    form = served_apis()[ElectLeadersRequest.message_key].form
    for version, code in ((0, 0), (1, CODE)):
        response = form.fail(request, ERROR, version)
        (result,) = response.replica_election_results
        assert response.error_code == code
        assert result.partition_result[0].error_code == CODE


def test_the_text_of_an_unknown_error_is_for_items_alone() -> None:
    """The error of a whole response has none, as before."""
    error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    response = refused(ElectLeadersRequest(topic_partitions=[]), error, 1)
    assert response.error_code == error.code
    creation = CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name="t",
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    request = CreateAclsRequest(creations=[creation])
    (result,) = refused(request, error, 1).results
    assert result.error_message == error.message
