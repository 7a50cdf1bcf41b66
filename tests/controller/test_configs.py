"""Changing settings: codes and texts as a live Kafka 4.3.0 gave them."""

from __future__ import annotations

import pytest

from ottla.controller.config_operations import ConfigOperation
from ottla.errors import ErrorCode
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.resources import ConfigResourceType
from ottla.protocol.apis.alter_configs import AlterConfigsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.records.metadata import ConfigRecord
from ottla.types import ZERO_UUID
from tests.controller.harness import Harness, incremental_change

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


@pytest.fixture
def harness() -> Harness:
    """Run a node with the topic alpha."""
    harness = Harness().bring_up()
    harness.create("alpha")
    return harness


def _alter(
    harness: Harness, kind: int, name: str, *changes: tuple[str, int, str | None]
) -> tuple[int, str | None]:
    request = incremental_change(kind, name, *changes)
    result = harness.ask(request).responses[0]
    return result.error_code, result.error_message


@pytest.mark.parametrize(
    ("kind", "name", "change", "code", "text"),
    [
        (
            TOPIC,
            "alpha",
            ("retention.ms", APPEND, "1"),
            40,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            BROKER,
            "1",
            ("log.cleaner.threads", APPEND, "1"),
            40,
            "Config value append is not allowed for config key: log.cleaner.threads",
        ),
        (
            TOPIC,
            "alpha",
            ("retention.ms", SET, "xx"),
            40,
            "Invalid value xx for configuration retention.ms: Not a number of type LONG",
        ),
        (TOPIC, "nosuch", ("retention.ms", SET, "1"), 3, "The topic 'nosuch' does not exist."),
        (
            TOPIC,
            "alpha",
            ("min.insync.replicas", SET, "0"),
            40,
            "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
        ),
        (
            BROKER,
            "1",
            ("log.dirs", SET, "2"),
            42,
            "Cannot update these configs dynamically: [log.dirs]",
        ),
        (
            BROKER,
            "1",
            ("log.cleaner.threads", SET, "z"),
            42,
            "Invalid value z for configuration log.cleaner.threads: Not a number of type INT",
        ),
        (
            BROKER,
            "1",
            ("min.insync.replicas", SET, "1"),
            40,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            BROKER,
            "",
            ("min.insync.replicas", DELETE, None),
            40,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
        (
            GROUP,
            "g",
            ("consumer.session.timeout.ms", SET, "1"),
            40,
            (
                "consumer.session.timeout.ms must be greater than or equal to "
                "group.consumer.min.session.timeout.ms"
            ),
        ),
        (GROUP, "g", ("nope", SET, "1"), 40, "Unknown group config name: nope"),
        (16, "m", ("nope", SET, "1"), 42, "Unknown client metrics configuration: nope"),
        (16, "m", ("interval.ms", SET, "5"), 42, "Invalid value 5 for interval.ms, interval must"),
        (99, "m", ("interval.ms", SET, "5"), 42, "Unknown resource type 99"),
        (TOPIC, "", ("retention.ms", SET, "5"), 42, "Default topic resources are not allowed."),
        (
            BROKER,
            "7",
            ("log.cleaner.threads", SET, "2"),
            42,
            "Unexpected broker id, expected 1, but received 7",
        ),
        (
            BROKER,
            "x",
            ("log.cleaner.threads", SET, "2"),
            42,
            "Node id must be an integer, but it is: x",
        ),
        (BROKER, "1", ("log.cleaner.threads", 9, "x"), 42, "Unknown operations type 9"),
        (TOPIC, "alpha", ("retention.ms", SET, None), 42, "Null value not supported for : "),
        (
            TOPIC,
            "alpha",
            ("leader.replication.throttled.replicas", SET, "0:1," * 10_000),
            40,
            "The configuration value cannot be added because it exceeds the maximum value size",
        ),
    ],
)
def test_refuses_with_kafkas_code_and_text(
    harness: Harness,
    kind: int,
    name: str,
    change: tuple[str, int, str | None],
    code: int,
    text: str,
) -> None:
    """An invalid change is refused in Kafka's words."""
    got = _alter(harness, kind, name, change)
    assert got[0] == code
    assert str(got[1]).startswith(text)


def test_lists_grow_from_their_default(harness: Harness) -> None:
    """Appending to a list that is not set starts from its default."""
    assert _alter(harness, TOPIC, "alpha", ("cleanup.policy", APPEND, "compact"))[0] == 0
    assert harness.image.configs.topic("alpha") == {"cleanup.policy": "delete,compact"}
    assert _alter(harness, TOPIC, "alpha", ("cleanup.policy", SUBTRACT, "delete"))[0] == 0
    assert harness.image.configs.topic("alpha") == {"cleanup.policy": "compact"}
    assert _alter(harness, TOPIC, "alpha", ("cleanup.policy", DELETE, None))[0] == 0
    assert not harness.image.configs.topic("alpha")


def test_lists_do_not_grow_from_what_the_node_s_file_says() -> None:
    """Kafka's controller uses the default of the definition, not the broker's file."""
    harness = Harness(log_cleanup_policy="compact").bring_up()
    harness.create("alpha")
    assert _alter(harness, TOPIC, "alpha", ("cleanup.policy", APPEND, "delete"))[0] == 0
    assert harness.image.configs.topic("alpha") == {"cleanup.policy": "delete"}


def test_a_list_that_grows_beyond_a_record_is_refused(harness: Harness) -> None:
    """The limit is in bytes, not characters; a value no record can hold is refused."""
    name = "listener.name.plaintext.ssl.cipher.suites"
    assert _alter(harness, BROKER, "1", (name, APPEND, "\u00e9" * 10_000))[0] == 0
    code, text = _alter(harness, BROKER, "1", (name, APPEND, "\u00e8" * 10_000))
    assert code == ErrorCode.INVALID_CONFIG
    assert str(text).endswith("exceeds the maximum value size of 32767 bytes.")


def test_a_broker_setting_without_change_is_written_again(harness: Harness) -> None:
    """Setting a broker's value again makes brokers reload the file that it names."""
    for _ in range(2):
        end = harness.node.quorum.log_end_offset
        assert _alter(harness, BROKER, "1", ("log.cleaner.threads", SET, "2"))[0] == 0
        assert harness.node.quorum.log_end_offset == end + 1


def test_the_old_api_replaces_everything(harness: Harness) -> None:
    """AlterConfigs removes what it does not name."""
    _alter(harness, TOPIC, "alpha", ("retention.ms", SET, "1000"))
    struct = AlterConfigsRequest.AlterConfigsResource
    resource = struct(
        resource_type=ConfigResourceType.TOPIC,
        resource_name="alpha",
        configs=[struct.AlterableConfig(name="retention.bytes", value="5")],
    )
    request = AlterConfigsRequest(resources=[resource], validate_only=False)
    assert harness.ask(request).responses[0].error_code == 0
    assert harness.image.configs.topic("alpha") == {"retention.bytes": "5"}


def test_deleting_a_topic_removes_its_settings(harness: Harness) -> None:
    """A new topic with the name of a deleted one has no settings."""
    _alter(harness, TOPIC, "alpha", ("retention.ms", SET, "1000"))
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name="alpha", topic_id=ZERO_UUID)],
        timeout_ms=1000,
    )
    assert harness.ask(request).responses[0].error_code == 0
    assert harness.create("alpha").error_code == ErrorCode.NONE
    assert not harness.image.configs.topic("alpha")


def test_a_stored_setting_that_was_removed_is_ignored(harness: Harness) -> None:
    """Else no other setting of the topic could be changed: all of them are checked."""
    record = ConfigRecord(
        resource_type=TOPIC, resource_name="alpha", name="message.format.version", value="2.8"
    )
    harness.node._runtime._append([MessageAndVersion(record, 0)])
    harness.run_turn()
    assert _alter(harness, TOPIC, "alpha", ("retention.ms", SET, "1000")) == (0, None)
    assert harness.image.configs.topic("alpha") == {"retention.ms": "1000"}
