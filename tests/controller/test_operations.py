"""Deleting topics, features, quotas, elections, moves, directories."""

from __future__ import annotations

import pytest

from ottla.controller import quotas, runtime
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.apis.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest
from ottla.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.types import ZERO_UUID, Uuid
from tests.controller.harness import Harness, incremental_change

OTHER_ID = Uuid(b"x" * 16)
State = DeleteTopicsRequest.DeleteTopicState


def _state(name: str | None, topic_id: Uuid = ZERO_UUID) -> State:
    return State(name=name, topic_id=topic_id)


@pytest.fixture
def harness() -> Harness:
    """Run a node with the topic alpha."""
    harness = Harness().bring_up()
    harness.create("alpha")
    return harness


def _delete(harness: Harness, *states: State) -> list[DeleteTopicsResponse.DeletableTopicResult]:
    request = DeleteTopicsRequest(topics=list(states), timeout_ms=1000)
    answer: DeleteTopicsResponse = harness.ask(request)
    return answer.responses


def test_deletes_by_name_and_by_id(harness: Harness) -> None:
    """A deleted topic is gone from the image; its name is free again, with another id."""
    first = harness.image.topics.by_name["alpha"].topic_id
    assert [(r.name, r.topic_id, r.error_code) for r in _delete(harness, _state("alpha"))] == [
        ("alpha", first, 0)
    ]
    second = harness.create("alpha").topic_id
    assert second != first
    assert _delete(harness, _state(None, second))[0].error_code == 0
    assert not harness.image.topics.by_id


@pytest.mark.parametrize(
    ("states", "code", "text"),
    [
        ([_state("nosuch")], 3, "This server does not host this topic-partition."),
        ([_state(None, OTHER_ID)], 100, "This server does not host this topic ID."),
        (
            [_state("alpha", OTHER_ID)],
            42,
            "You may not specify both topic name and topic id.",
        ),
        ([_state(None)], 42, "Neither topic name nor id were specified."),
        ([_state("alpha"), _state("alpha")], 42, "Duplicate topic name."),
    ],
)
def test_refuses_deletions(
    harness: Harness, states: list[State], code: int, text: str | None
) -> None:
    """A topic that cannot be deleted stays."""
    result = _delete(harness, *states)[0]
    assert (result.error_code, result.error_message) == (code, text)
    assert "alpha" in harness.image.topics.by_name


def test_a_topic_named_by_name_and_by_id_stays(harness: Harness) -> None:
    """One error for both entries; entries with neither are each answered."""
    topic_id = harness.image.topics.by_name["alpha"].topic_id
    results = _delete(harness, _state("alpha"), _state(None, topic_id), _state(None), _state(None))
    assert [(r.name, r.topic_id, r.error_code) for r in results] == [
        (None, ZERO_UUID, 42),
        (None, ZERO_UUID, 42),
        ("alpha", topic_id, 42),
    ]
    assert "alpha" in harness.image.topics.by_name


def test_deletion_can_be_switched_off() -> None:
    """With delete.topic.enable=false the whole request fails."""
    harness = Harness(delete_topic_enable="false").bring_up()
    with pytest.raises(KafkaError) as caught:
        _delete(harness, _state("t"))
    assert caught.value.code == ErrorCode.TOPIC_DELETION_DISABLED


def _update(harness: Harness, name: str, level: int, kind: int = 1) -> UpdateFeaturesResponse:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature=name, max_version_level=level, upgrade_type=kind
    )
    answer: UpdateFeaturesResponse = harness.ask(UpdateFeaturesRequest(feature_updates=[update]))
    return answer


def test_features_go_down_only_when_asked_to(harness: Harness) -> None:
    """A downgrade needs its own type, an unknown level is refused, 0 removes the feature."""
    assert _update(harness, "share.version", 0).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert _update(harness, "share.version", 9).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert _update(harness, "nosuch", 1).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert _update(harness, "share.version", 0, 2).error_code == 0
    assert "share.version" not in harness.image.features.levels
    assert _update(harness, "share.version", 1).error_code == 0
    assert harness.image.features.levels["share.version"] == 1


def test_of_two_levels_for_one_feature_the_last_counts(harness: Harness) -> None:
    """Neither an error of the first nor a second record stays."""
    one = UpdateFeaturesRequest.FeatureUpdateKey
    updates = [
        one(feature="share.version", max_version_level=9, upgrade_type=1),
        one(feature="share.version", max_version_level=0, upgrade_type=2),
    ]
    before = harness.node.quorum.log_end_offset
    response = harness.ask(UpdateFeaturesRequest(feature_updates=updates))
    assert (response.error_code, len(response.results)) == (0, 2)
    assert harness.node.quorum.log_end_offset == before + 1


def test_the_level_of_the_quorum_is_raised_with_all_levels_or_not_at_all(
    harness: Harness,
) -> None:
    """Static voters become dynamic ones (KIP-853); a dry run and a refused request change none."""
    one = UpdateFeaturesRequest.FeatureUpdateKey
    upgrade = one(feature="kraft.version", max_version_level=1, upgrade_type=1)
    unknown = one(feature="metadata.version", max_version_level=99, upgrade_type=1)
    quorum = harness.node.quorum
    assert quorum.kraft_version == 0
    for request in (
        UpdateFeaturesRequest(feature_updates=[upgrade], validate_only=True),
        UpdateFeaturesRequest(feature_updates=[upgrade, unknown]),
    ):
        before = quorum.log_end_offset
        refused = harness.ask(request).error_code
        assert refused == (0 if request.validate_only else ErrorCode.INVALID_UPDATE_VERSION)
        assert (quorum.kraft_version, quorum.log_end_offset) == (0, before)
    for _ in range(2):
        assert _update(harness, "kraft.version", 1).error_code == 0
        assert quorum.kraft_version == 1
    assert [voter.directory_id for voter in quorum.voters] == [harness.directory_id]
    assert "Can't downgrade" in (_update(harness, "kraft.version", 0, 3).error_message or "")


def _quota(
    harness: Harness, entity: list[tuple[str, str | None]], key: str, value: float | None
) -> tuple[int, str | None]:
    struct = AlterClientQuotasRequest.EntryData
    entry = struct(
        entity=[struct.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[struct.OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    result = harness.ask(request).entries[0]
    return result.error_code, result.error_message


def test_quotas_are_set_and_removed(harness: Harness) -> None:
    """An entity has several limits, and an entity without limits is removed."""
    entity: list[tuple[str, str | None]] = [("user", "alice"), ("client-id", None)]
    assert _quota(harness, entity, "producer_byte_rate", 1000.0) == (0, None)
    key = (("client-id", None), ("user", "alice"))
    assert harness.image.quotas.by_entity == {key: {"producer_byte_rate": 1000.0}}
    assert _quota(harness, entity, "producer_byte_rate", None) == (0, None)
    assert not harness.image.quotas.by_entity


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ([], "producer_byte_rate", 1.0),
        ([("ip", "10.0.0.1"), ("user", "a")], "connection_creation_rate", 1.0),
        ([("ip", "10.0.0.1")], "producer_byte_rate", 1.0),
        ([("planet", "mars")], "producer_byte_rate", 1.0),
        ([("user", "")], "producer_byte_rate", 1.0),
        ([("user", "a")], "nosuch", 1.0),
        ([("user", "a")], "producer_byte_rate", -1.0),
        ([("user", "a")], "producer_byte_rate", 1.5),
        ([("ip", "not an ip!")], "connection_creation_rate", 1.0),
    ],
)
def test_refuses_quotas(
    harness: Harness, entity: list[tuple[str, str | None]], key: str, value: float
) -> None:
    """A quota that makes no sense is an invalid request."""
    assert _quota(harness, entity, key, value)[0] == ErrorCode.INVALID_REQUEST
    assert not harness.image.quotas.by_entity


def test_there_is_an_end_to_quotas(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the maximum a new limit is refused; existing ones can still change."""
    monkeypatch.setattr(quotas, "MAX_LIMITS", 2)
    for name in ("a", "b"):
        assert _quota(harness, [("user", name)], "producer_byte_rate", 1.0) == (0, None)
    refused = _quota(harness, [("user", "c")], "producer_byte_rate", 1.0)
    assert refused[0] == ErrorCode.POLICY_VIOLATION
    assert _quota(harness, [("user", "a")], "producer_byte_rate", 2.0) == (0, None)
    assert _quota(harness, [("user", "a")], "producer_byte_rate", None) == (0, None)
    assert _quota(harness, [("user", "c")], "producer_byte_rate", 1.0) == (0, None)


def test_elections_are_not_needed_where_all_is_well(harness: Harness) -> None:
    """A leading preferred leader is not changed; an election of all partitions lists none."""
    struct = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        election_type=0,
        topic_partitions=[
            struct(topic="alpha", partitions=[0, 9]),
            struct(topic="no", partitions=[0]),
        ],
    )
    results = harness.ask(request).replica_election_results
    assert [r.error_code for result in results for r in result.partition_result] == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    everything = ElectLeadersRequest(election_type=0, topic_partitions=None)
    results = harness.ask(everything).replica_election_results
    assert [(result.topic, result.partition_result) for result in results] == [("alpha", [])]
    unknown = ElectLeadersRequest(election_type=7, topic_partitions=None)
    answer = harness.ask(unknown)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_nothing_is_being_moved(harness: Harness) -> None:
    """None is in progress; one to the same replica changes nothing, and none is cancelled."""
    listing = ListPartitionReassignmentsRequest(topics=None)
    assert not harness.ask(listing).topics
    struct = AlterPartitionReassignmentsRequest.ReassignableTopic
    partitions = [
        struct.ReassignablePartition(partition_index=0, replicas=[1]),
        struct.ReassignablePartition(partition_index=0, replicas=None),
        struct.ReassignablePartition(partition_index=0, replicas=[5]),
    ]
    request = AlterPartitionReassignmentsRequest(
        topics=[struct(name="alpha", partitions=partitions)]
    )
    answer = harness.ask(request)
    assert [one.error_code for one in answer.responses[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ]


def test_brokers_say_where_replicas_lie(harness: Harness) -> None:
    """An assignment to another directory is recorded; unknown topics are reported."""
    topic_id = harness.image.topics.by_name["alpha"].topic_id
    struct = AssignReplicasToDirsRequest.DirectoryData
    topics = [
        struct.TopicData(
            topic_id=one, partitions=[struct.TopicData.PartitionData(partition_index=0)]
        )
        for one in (topic_id, ZERO_UUID)
    ]
    request = AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=harness.broker_epoch,
        directories=[struct(id=OTHER_ID, topics=topics)],
    )
    answer = harness.ask(request).directories[0]
    assert [topic.partitions[0].error_code for topic in answer.topics] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    assert harness.image.topics.by_id[topic_id].partitions[0].directories == (OTHER_ID,)


def test_elr_keeps_the_clusters_setting_and_takes_the_brokers(harness: Harness) -> None:
    """Enabling ELR again keeps the cluster's setting and removes those of brokers."""
    name, feature = "min.insync.replicas", "eligible.leader.replicas.version"
    assert _update(harness, feature, 0, 2).error_code == 0
    for broker, value in (("", "2"), ("1", "3")):
        change = incremental_change(4, broker, (name, 0, value))
        assert harness.ask(change).responses[0].error_code == 0
    assert _update(harness, feature, 0, 2).error_code == 0
    assert harness.image.configs.of(4, "")[name] == "2"
    assert _update(harness, feature, 1).error_code == 0
    assert harness.image.configs.of(4, "")[name] == "2"
    assert name not in harness.image.configs.of(4, "1")


@pytest.mark.parametrize("name", [" 1", "1_0", "1 ", "one", "99999999999"])
def test_only_numbers_name_a_broker(harness: Harness, name: str) -> None:
    """Number formats that only Python accepts are refused."""
    change = incremental_change(4, name, ("log.retention.ms", 0, "5"))
    result = harness.ask(change).responses[0]
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message == f"Node id must be an integer, but it is: {name}"


def test_what_need_not_be_in_one_batch_is_split(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fencing a broker with many partitions needs several batches."""
    monkeypatch.setattr(runtime, "_RECORDS_PER_BATCH", 2)
    monkeypatch.setattr(runtime, "MAX_BATCH_BYTES", 400)
    for topic in ("b", "c", "d", "e", "f"):
        harness.create(topic)
    harness.clock.ms += 60_000
    harness.node.tick(harness.clock.ms)
    harness.run_turn()
    assert harness.image.cluster.brokers[1].fenced
    assert all(topic.partitions[0].leader == -1 for topic in harness.image.topics.by_id.values())
