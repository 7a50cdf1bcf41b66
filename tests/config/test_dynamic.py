"""Which settings of a broker may change while it runs."""

from __future__ import annotations

import pytest

from ottla.config.dynamic import (
    ALL_DYNAMIC,
    UpdateMode,
    base_name,
    check_dynamic,
    definition_of,
    update_mode,
)


def test_the_modes() -> None:
    """A setting is fixed, changes for one broker, or for all."""
    assert len(ALL_DYNAMIC) == 102
    assert update_mode("node.id") is UpdateMode.READ_ONLY
    assert update_mode("listeners") is UpdateMode.PER_BROKER
    assert update_mode("log.retention.ms") is UpdateMode.CLUSTER_WIDE
    assert update_mode("listener.name.inside.ssl.protocol") is UpdateMode.PER_BROKER
    assert update_mode("listener.name.inside.max.connections") is UpdateMode.CLUSTER_WIDE


def test_listener_prefixes_come_off() -> None:
    """The base setting of a listener or mechanism setting is found."""
    assert base_name("listener.name.inside.ssl.protocol") == "ssl.protocol"
    assert base_name("listener.name.x.scram-sha-256.sasl.jaas.config") == "sasl.jaas.config"
    assert base_name("log.dirs") == "log.dirs"
    throttle = definition_of("leader.replication.throttled.rate")
    assert throttle is not None
    assert definition_of("no.such.name") is None


@pytest.mark.parametrize(
    ("changes", "one_broker", "sentences"),
    [
        ({"log.retention.ms": "5"}, False, []),
        ({"my.plugin": "5"}, False, []),
        ({"node.id": "5"}, True, ["Cannot update these configs dynamically: [node.id]"]),
        (
            {"producer.states.max": "5"},
            False,
            ["Cannot update these configs dynamically: [producer.states.max]"],
        ),
        (
            {"listeners": "PLAINTEXT://:1"},
            False,
            [
                (
                    "Cannot update these configs at default cluster level, broker id must be "
                    "specified: [listeners]"
                )
            ],
        ),
        (
            {"ssl.key.password": "x"},
            True,
            [
                (
                    "These security configs can be dynamically updated only per-listener using the "
                    "listener prefix: [ssl.key.password]"
                )
            ],
        ),
        (
            {"num.io.threads": "0"},
            True,
            ["Invalid value 0 for configuration num.io.threads: Value must be at least 1"],
        ),
    ],
)
def test_changes_are_checked(
    changes: dict[str, str], *, one_broker: bool, sentences: list[str]
) -> None:
    """A change must be dynamic, of the right scope, with a valid value."""
    problems = check_dynamic(changes, one_broker=one_broker)
    assert [problem.message for problem in problems] == sentences
