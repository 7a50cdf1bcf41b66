"""A topic's settings and the broker's defaults."""

from __future__ import annotations

import pytest

from ottla.config.broker import parse_broker_config
from ottla.config.problems import ConfigErrors
from ottla.config.topic import TopicConfig, load_topic_config, parse_topic_config, public_names
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


def test_stored_settings_never_stop_a_broker() -> None:
    """A stored value that is no longer valid falls back to the default."""
    topic = load_topic_config({"retention.ms": "x", "segment.ms": "4"}, BROKER)
    assert isinstance(topic, TopicConfig)
    assert (topic.retention_ms, topic.segment_ms) == (3_600_000, 4)
