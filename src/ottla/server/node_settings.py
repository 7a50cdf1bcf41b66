"""From a file, overrides and defaults to the settings a node starts with.

Kafka: kafka.Kafka.getPropsFromArgs; without a file Kafka does not start, we do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.config.broker import parse_broker_config
from ottla.config.problems import ConfigErrors, nearest
from ottla.config.properties import parse_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.config.broker import BrokerConfig

DEVELOPMENT_DIRECTORY = "ottla-data"
DEVELOPMENT_PORT = 9092


class NodeSettings(NamedTuple):
    """What to start; a development node formats its directory by itself."""

    config: BrokerConfig
    is_development: bool
    warnings: tuple[str, ...] = ()
    """Names that nobody knows and that look like no known one: passed over, as in Kafka."""


def development_defaults(port: int = DEVELOPMENT_PORT) -> dict[str, str]:
    """Return the settings of a node that is started without a file: one copy of everything."""
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "log.dirs": f"./{DEVELOPMENT_DIRECTORY}",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def parse_overrides(overrides: Sequence[str]) -> dict[str, str]:
    """Read `key=value` texts; ValueError names the one without `=`."""
    settings = {}
    for override in overrides:
        name, separator, value = override.partition("=")
        if not separator:
            raise ValueError(f"--override takes key=value, not {override!r}")
        settings[name.strip()] = value.strip()
    return settings


def node_settings(
    file_text: str | None, overrides: Mapping[str, str], *, port: int | None = None
) -> NodeSettings:
    """Put overrides over the file, or over the development defaults when there is none.

    Raises ConfigErrors with all that is wrong: values, what is not built yet, and names that are
    not known but near to one that is.
    """
    is_development = file_text is None
    if file_text is None:
        given = development_defaults(DEVELOPMENT_PORT if port is None else port)
    else:
        given = parse_properties(file_text)
    config = parse_broker_config({**given, **overrides})
    unknown = config.unknown_settings
    misspelt = [one for one in unknown if one.name in overrides or nearest(one.name, config.keys)]
    problems = [*misspelt, *config.unbuilt]
    if problems:
        raise ConfigErrors(problems)
    return NodeSettings(config, is_development, tuple(one.message for one in unknown))
