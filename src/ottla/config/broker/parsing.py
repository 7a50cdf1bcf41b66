"""Parses the configuration of a node and validates it as a whole.

Kafka: kafka.server.KafkaConfig.fromProps. All problems are collected before an exception is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.config.broker.config import BrokerConfig
from ottla.config.broker.rules import broken_rules
from ottla.config.own import OwnSettings
from ottla.config.problems import ConfigErrors

if TYPE_CHECKING:
    from collections.abc import Mapping


def parse_broker_config(given: Mapping[str, str]) -> BrokerConfig:
    """Read a node's configuration from dotted names and texts.

    Raises ConfigErrors with every problem found. Unknown names are not an error: they are listed
    in `BrokerConfig.unknown_settings`; `unsupported_settings` yields those of features that are
    not implemented.
    """
    filled = _with_node_id(given)
    reading = BrokerConfig.definitions.read(filled)
    wrong = {problem.name for problem in reading.problems}
    values = {**_placeholders(wrong), **reading.values}
    config = BrokerConfig(values, filled)
    # an invalid node.id was copied to broker.id, which was not given
    problems = [
        problem
        for problem in reading.problems
        if problem.name != "broker.id" or problem.name in given
    ]
    problems += [problem for problem in config.address_problems if problem.name not in wrong]
    wrong.update(problem.name for problem in config.address_problems)
    problems += broken_rules(config, wrong)
    problems += [*OwnSettings.definitions.read(filled).problems, *config.own.address_problems]
    problems += config.own.level_problems
    if problems:
        raise ConfigErrors(problems)
    return config


def _with_node_id(given: Mapping[str, str]) -> dict[str, str]:
    """Copy node.id to broker.id or the reverse when only one of them is given."""
    filled = dict(given)
    if "broker.id" in given and "node.id" not in given:
        filled["node.id"] = given["broker.id"]
    if "node.id" in given and "broker.id" not in given:
        filled["broker.id"] = given["node.id"]
    return filled


def _placeholders(wrong: set[str]) -> dict[str, Any]:
    """Return values for missing required settings, so that the others can be checked."""
    required: dict[str, Any] = {
        "process.roles": (),
        "node.id": -1,
        "controller.listener.names": (),
    }
    return {name: value for name, value in required.items() if name in wrong}
