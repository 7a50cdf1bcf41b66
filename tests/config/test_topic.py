"""A topic's settings and the broker's defaults."""

from __future__ import annotations

import pytest

from ottla.config.broker import parse_broker_config
from ottla.config.problems import ConfigErrors
from ottla.config.topic import (
    TopicConfig,
    load_topic_config,
    local_retention_problems,
    parse_topic_config,
    public_names,
)
from tests.config.test_broker import NODE

BROKER = parse_broker_config(
    {**NODE, "log.retention.hours": "1", "log.roll.ms": "9", "message.max.bytes": "77"}
)


def test_defaults_come_from_the_broker() -> None:
    """Settings that the topic does not set are the broker's, by its own names and units."""
    topic = parse_topic_config({"segment.bytes": "1048576"}, BROKER)
    assert topic.segment_bytes == topic.effective_segment_bytes == 1_048_576
    assert (topic.retention_ms, topic.segment_ms, topic.max_message_bytes) == (3_600_000, 9, 77)
    assert topic.delete
    assert not topic.compact
    assert len(public_names()) == 33


def test_policies() -> None:
    """A topic may compact, delete, do both or neither."""
    both = parse_topic_config({"cleanup.policy": "compact,delete"}, BROKER)
    assert both.compact
    assert both.delete
    neither = parse_topic_config({"cleanup.policy": ""}, BROKER)
    assert not neither.compact
    assert not neither.delete


def test_tests_may_use_tiny_segments() -> None:
    """The internal size goes below the public minimum."""
    topic = parse_topic_config({"internal.segment.bytes": "100"}, BROKER)
    assert topic.effective_segment_bytes == 100


@pytest.mark.parametrize(
    ("given", "sentences"),
    [
        (
            {"retention.m": "5"},
            ["Unknown topic config name: retention.m; did you mean retention.ms?"],
        ),
        ({"zzz": "5"}, ["Unknown topic config name: zzz"]),
        (
            {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
            ["conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)"],
        ),
        (
            {"segment.bytes": "1", "retention.ms": "x"},
            [
                "Invalid value x for configuration retention.ms: Not a number of type LONG",
                "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576",
            ],
        ),
        (
            {"remote.storage.enable": "true", "local.retention.ms": "9", "retention.ms": "8"},
            [
                (
                    "Tiered Storage functionality is disabled in the broker. Topic cannot be "
                    "configured with remote log storage."
                ),
                (
                    "Invalid value 9 for configuration local.retention.ms: Value must not be more "
                    "than retention.ms property value: 8"
                ),
            ],
        ),
    ],
)
def test_what_is_refused(given: dict[str, str], sentences: list[str]) -> None:
    """Unknown names, invalid values and contradictions are reported in Kafka's words."""
    with pytest.raises(ConfigErrors) as caught:
        parse_topic_config(given, BROKER)
    assert [problem.message for problem in caught.value.problems] == sentences


TIERED = parse_broker_config({**NODE, "remote.log.storage.system.enable": "true"})
ENABLED = {"remote.storage.enable": "true"}
COPY_DISABLED = {**ENABLED, "remote.log.copy.disable": "true", "retention.bytes": "1000"}


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compacted_topics_are_not_tiered(policy: str) -> None:
    """Kafka's text; a topic that deletes or does nothing is accepted."""
    with pytest.raises(ConfigErrors) as caught:
        parse_topic_config({**ENABLED, "cleanup.policy": policy}, TIERED)
    assert str(caught.value) == (
        "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy "
        "being an empty list."
    )
    for accepted in ("delete", ""):
        parse_topic_config({**ENABLED, "cleanup.policy": accepted}, TIERED)


@pytest.mark.parametrize("local", ["500", "-2", "1000"])
def test_without_copies_local_and_whole_retention_are_the_same(local: str) -> None:
    """Nothing more goes to the tier, so that a lower local limit would lose records."""
    settings = {**COPY_DISABLED, "local.retention.bytes": local}
    if local != "500":
        parse_topic_config(settings, TIERED)
        return
    with pytest.raises(ConfigErrors) as caught:
        parse_topic_config(settings, TIERED)
    assert str(caught.value) == (
        "When `remote.log.copy.disable` is set to true, the `local.retention.bytes` and "
        "`retention.bytes` must be set to the identical value because there will be no more logs "
        "copied to the remote storage."
    )


@pytest.mark.parametrize("after", [{}, {"remote.storage.enable": "false"}])
def test_remote_data_is_not_orphaned(after: dict[str, str]) -> None:
    """A tiered topic is disabled only together with the deletion of its remote data."""
    with pytest.raises(ConfigErrors, match="disable remote storage without deleting remote data"):
        parse_topic_config(after, TIERED, ENABLED)
    parse_topic_config({**after, "remote.log.delete.on.disable": "true"}, TIERED, ENABLED)
    parse_topic_config(after, TIERED, {"remote.storage.enable": "false"})


def test_a_node_of_tiers_keeps_local_segments_no_longer_than_the_log() -> None:
    """The defaults of topics are checked at the start, by the names of topics as in Kafka."""
    given = {"log.retention.ms": "1000", "log.local.retention.ms": "2000"}
    (problem,) = local_retention_problems(parse_broker_config({**NODE, **given}))
    assert problem.message == (
        "Invalid value 2000 for configuration local.retention.ms: Value must not be more than "
        "retention.ms property value: 1000"
    )


def test_stored_settings_never_stop_a_broker() -> None:
    """A stored value that is no longer valid falls back to the default."""
    topic = load_topic_config({"retention.ms": "x", "segment.ms": "4"}, BROKER)
    assert isinstance(topic, TopicConfig)
    assert (topic.retention_ms, topic.segment_ms) == (3_600_000, 4)
