"""What a node that is not formatted proposes; the checks of directories: tests/server/system."""

from __future__ import annotations

import pytest

from ottla.config.broker import parse_broker_config
from ottla.server.node.identity import format_command

BOTH = "broker,controller"
JOINING = "(to join a quorum: --no-initial-controllers)"


@pytest.mark.parametrize(
    ("roles", "controllers", "words"),
    [
        (
            BOTH,
            "bootstrap.servers=a:9093",
            '-t "$(ottla storage random-uuid)" -c FILE --standalone',
        ),
        (BOTH, "voters=1@a:9093", '-t "$(ottla storage random-uuid)" -c FILE'),
        (BOTH, "voters=1@a:9093,2@b:9093", "-t CLUSTER_ID -c FILE"),
        ("broker", "bootstrap.servers=a:9093", "-t CLUSTER_ID -c FILE"),
        (
            BOTH,
            "bootstrap.servers=a:9093,b:9093",
            f"-t CLUSTER_ID -c FILE --initial-controllers VOTERS {JOINING}",
        ),
    ],
)
def test_the_command_that_formats(roles: str, controllers: str, words: str) -> None:
    """A quorum of its own only where no other controller is named."""
    name, _, value = controllers.partition("=")
    listeners = "PLAINTEXT://:9092,CONTROLLER://:9093" if roles == BOTH else "PLAINTEXT://:9092"
    config = parse_broker_config(
        {
            "node.id": "1",
            "process.roles": roles,
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            f"controller.quorum.{name}": value,
            "log.dirs": "/var/data",
        }
    )
    assert format_command(config) == f"ottla storage format {words}"
