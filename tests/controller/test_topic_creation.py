"""Creating topics and adding partitions: codes and texts as a live Kafka 4.3.0 gave them."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from tests.controller.harness import DIRECTORY_ID, Harness, assigned_topic, topic

LONG_NAME = "x" * 250
REFUSED = [
    (topic("beta_x"), 17, "Topic 'beta_x' collides with existing topic: beta.x"),
    (
        topic("bad topic"),
        17,
        (
            "Topic name is invalid: 'bad topic' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        ),
    ),
    (topic(".."), 17, "Topic name is invalid: '..' is not allowed"),
    (topic(""), 17, "Topic name is invalid: the empty string is not allowed"),
    (
        topic(LONG_NAME),
        17,
        (
            f"Topic name is invalid: the length of '{LONG_NAME}' is longer than the max allowed "
            "length 249"
        ),
    ),
    (topic("alpha"), 36, "Topic 'alpha' already exists."),
    (
        topic("rf", factor=3),
        38,
        (
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 "
            "cannot be reached because only 1 broker(s) are registered or some brokers have all "
            "their log directories cordoned."
        ),
    ),
    (
        topic("rf0", factor=0),
        38,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    ),
    (topic("p0", 0), 37, "Number of partitions was set to an invalid non-positive value."),
    (topic("cfg", nope="1"), 40, "Unknown topic config name: nope"),
    (
        topic("cfg", retention_ms="abc"),
        40,
        "Invalid value abc for configuration retention.ms: Not a number of type LONG",
    ),
    (
        topic("cfg", cleanup_policy="zip"),
        40,
        (
            "Invalid value zip for configuration cleanup.policy: String must be one of: compact, "
            "delete"
        ),
    ),
    (
        topic("cfg", retention_ms="-2"),
        40,
        "Invalid value -2 for configuration retention.ms: Value must be at least -1",
    ),
    (
        topic("cfg", retention_ms=None),
        40,
        "Null value not supported for topic configs: retention.ms",
    ),
    (
        assigned_topic("asg", [1], [7]),
        39,
        "The manual partition assignment includes broker 7, but no such broker is registered.",
    ),
    (
        assigned_topic("asg", [1, 1]),
        39,
        "The manual partition assignment includes the broker 1 more than once.",
    ),
    (assigned_topic("asg", []), 39, "The manual partition assignment includes an empty replica"),
    (topic("__cluster_metadata"), 42, "Creation of internal topic __cluster_metadata is"),
]


@pytest.fixture
def harness() -> Harness:
    """Run a node with the topics alpha (5 partitions) and beta.x."""
    harness = Harness().bring_up()
    assert harness.create("alpha", 5).error_code == 0
    assert harness.create("beta.x").error_code == 0
    return harness


@pytest.mark.parametrize(("wanted", "code", "text"), REFUSED)
def test_refuses_with_kafkas_code_and_text(
    harness: Harness, wanted: CreateTopicsRequest.CreatableTopic, code: int, text: str
) -> None:
    """An invalid topic is refused in Kafka's words and leaves no records."""
    before = len(harness.image.topics.by_id)
    request = CreateTopicsRequest(topics=[wanted])
    result = harness.ask(request).topics[0]
    assert result.error_code == code
    assert str(result.error_message).startswith(text)
    assert len(harness.image.topics.by_id) == before


def test_a_new_topic_leads_where_its_broker_is(harness: Harness) -> None:
    """Partitions of a new topic start at epoch 0, led by the one broker, in its directory."""
    result = harness.create("gamma", 3, retention_ms="5000")
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    image = harness.image.topics.by_name["gamma"]
    assert image.topic_id == result.topic_id
    assert sorted(image.partitions) == [0, 1, 2]
    partition = image.partitions[0]
    assert partition.replicas == partition.isr == (1,)
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 0, 0)
    assert partition.directories == (DIRECTORY_ID,)
    assert harness.image.configs.topic("gamma") == {"retention.ms": "5000"}


def test_the_response_has_all_settings_and_their_sources(harness: Harness) -> None:
    """The result lists every topic setting by name, the topic's own among the defaults."""
    result = harness.create("gamma", retention_ms="5000")
    assert result.configs is not None
    by_name = {config.name: config for config in result.configs}
    assert list(by_name) == sorted(by_name)
    assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == ("5000", 1)
    assert by_name["segment.bytes"].config_source == 5
    assert by_name["min.insync.replicas"].config_source == 3


def test_defaults_come_from_the_broker() -> None:
    """-1 stands for num.partitions and default.replication.factor."""
    harness = Harness(num_partitions="4").bring_up()
    assert harness.create("t", -1, -1).num_partitions == 4


def test_too_many_partitions_fail_the_whole_request(harness: Harness) -> None:
    """More than 10,000 partitions in a request are a policy violation for every topic in it."""
    request = CreateTopicsRequest(topics=[topic("big1", 6000), topic("big2", 6000)])
    results = harness.ask(request).topics
    assert {(result.error_code, result.error_message) for result in results} == {
        (ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    }


def test_partitions_of_names_that_are_refused_do_not_count(harness: Harness) -> None:
    """Neither repeated names nor the metadata topic make a request too large, as in Kafka."""
    big = [topic(name, 10_001) for name in ("a", "a", "__cluster_metadata")]
    request = CreateTopicsRequest(topics=[*big, topic("b")])
    results = harness.ask(request).topics
    assert {result.name: result.error_code for result in results} == {
        "a": ErrorCode.INVALID_REQUEST,
        "__cluster_metadata": ErrorCode.INVALID_REQUEST,
        "b": ErrorCode.NONE,
    }


def test_too_many_records_fail_the_whole_request(harness: Harness) -> None:
    """A request may write 10,000 records: 9,999 partitions and their topic."""
    request = CreateTopicsRequest(topics=[topic("big", 10_000), topic("b"), topic("b")])
    end = harness.node.quorum.log_end_offset
    results = harness.ask(request).topics
    text = "Unable to perform excessively large batch operation."
    assert [(one.name, one.error_code, one.error_message) for one in results] == [
        (name, ErrorCode.POLICY_VIOLATION, text) for name in ("big", "b", "b")
    ]
    assert harness.node.quorum.log_end_offset == end


def test_a_setting_named_twice_may_not_be_null_once(harness: Harness) -> None:
    """Kafka looks for nulls before the last value of a setting counts."""
    made = topic("t", retention_ms=None)
    made.configs.append(topic("t", retention_ms="x").configs[0])
    (result,) = harness.ask(CreateTopicsRequest(topics=[made])).topics
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: retention.ms",
    )


def test_a_name_twice_in_a_request_is_refused_once(harness: Harness) -> None:
    """Repeated names give one result, and the other topics are made."""
    request = CreateTopicsRequest(topics=[topic("a"), topic("b"), topic("a")])
    results = harness.ask(request).topics
    assert [(result.name, result.error_code) for result in results] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]


def test_validate_only_changes_nothing(harness: Harness) -> None:
    """A validate-only request gets the same response."""
    end = harness.node.quorum.log_end_offset
    request = CreateTopicsRequest(topics=[topic("dry", 2)], validate_only=True)
    result = harness.ask(request).topics[0]
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert harness.node.quorum.log_end_offset == end


def test_nothing_is_created_while_all_brokers_are_fenced() -> None:
    """A broker that is registered but fenced cannot lead a new topic."""
    harness = Harness()
    harness.run_turn()
    harness.register()
    result = harness.create("t")
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert result.error_message == (
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or have "
        "all their log directories cordoned."
    )


def _add(
    harness: Harness, name: str, count: int, assignments: list[list[int]] | None = None
) -> CreatePartitionsResponse.CreatePartitionsTopicResult:
    struct = CreatePartitionsRequest.CreatePartitionsTopic
    wanted = struct(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [struct.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
    )
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=False)
    answer: CreatePartitionsResponse = harness.ask(request)
    return answer.results[0]


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "text"),
    [
        ("alpha", 5, None, 37, "Topic already has 5 partition(s)."),
        (
            "alpha",
            3,
            None,
            37,
            "The topic alpha currently has 5 partition(s); 3 would not be an increase.",
        ),
        ("nosuch", 3, None, 3, None),
        (
            "alpha",
            7,
            [[1]],
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            "alpha",
            6,
            [[7]],
            39,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        ("alpha", 20_000, None, 44, "Excessively large number of partitions per request."),
    ],
)
def test_refuses_partitions_as_kafka_does(
    harness: Harness,
    name: str,
    count: int,
    assignments: list[list[int]] | None,
    code: int,
    text: str | None,
) -> None:
    """Partitions that cannot be added are refused in Kafka's words."""
    result = _add(harness, name, count, assignments)
    assert (result.error_code, result.error_message) == (code, text)


def test_adds_partitions(harness: Harness) -> None:
    """New partitions follow the old ones."""
    assert _add(harness, "alpha", 7).error_code == 0
    assert sorted(harness.image.topics.by_name["alpha"].partitions) == list(range(7))
