"""Parses the configuration of a node; rules between its settings, with Kafka's messages.

Kafka: KafkaConfig.validateValues, GroupCoordinatorConfig, ShareGroupConfig. Each rule names the
settings it reads; it is skipped when one of them is already invalid by itself;
kafka.server.KafkaConfig.fromProps. All problems are collected before an exception is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.config.broker.config import BrokerConfig
from ottla.config.own import OwnSettings
from ottla.config.problems import ConfigErrors, ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ottla.config.broker.endpoints import ListenerEndpoint


class SettingsRule(NamedTuple):
    """A rule about settings; `broken` returns whether it is violated."""

    names: tuple[str, ...]
    broken: Callable[[BrokerConfig], bool]
    sentence: str | Callable[[BrokerConfig], str]


def broken_rules(config: BrokerConfig, wrong: set[str]) -> Iterator[ConfigProblem]:
    """Yield a problem for each violated rule, in Kafka's order."""
    for names, broken, sentence in RULES:
        if wrong.isdisjoint(names) and broken(config):
            text = sentence if isinstance(sentence, str) else sentence(config)
            yield ConfigProblem(names[0], config.text(names[0]), text)


def _not_less(small: str, large: str) -> SettingsRule:
    """Require that the first is at most the second, in the words of the group settings."""
    return SettingsRule(
        (large, small),
        lambda config: config.value(large) < config.value(small),
        f"{large} must be greater than or equal to {small}",
    )


def _not_more(small: str, large: str) -> SettingsRule:
    return SettingsRule(
        (small, large),
        lambda config: config.value(small) > config.value(large),
        f"{small} must be less than or equal to {large}",
    )


def _bounds(group: str, subject: str) -> list[SettingsRule]:
    smallest, largest = f"group.{group}.min.{subject}", f"group.{group}.max.{subject}"
    own = f"group.{group}.{subject}"
    return [_not_less(smallest, largest), _not_less(smallest, own), _not_more(own, largest)]


def _less(small: str, large: str) -> SettingsRule:
    return SettingsRule(
        (small, large),
        lambda config: config.value(small) >= config.value(large),
        f"{small} must be less than {large}",
    )


def _group_rules() -> list[SettingsRule]:
    rules: list[SettingsRule] = []
    for group in ("consumer", "share", "streams"):
        rules += _bounds(group, "heartbeat.interval.ms")
        rules += _bounds(group, "session.timeout.ms")
        heartbeat, session = (
            f"group.{group}.heartbeat.interval.ms",
            f"group.{group}.session.timeout.ms",
        )
        rules.append(_less(heartbeat, session))
        rules += _bounds(group, "assignment.interval.ms")
    rules += _bounds("share", "record.lock.duration.ms")
    rules += _bounds("share", "delivery.count.limit")
    locks = "group.share.{}partition.max.record.locks"
    rules.append(_not_less(locks.format("min."), locks.format("max.")))
    rules.append(_not_less(locks.format("min."), locks.format("")))
    rules.append(_not_less(locks.format(""), locks.format("max.")))
    own, largest = "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
    rules.append(_not_more(own, largest))
    return rules


def _names(listeners: Any) -> set[str]:
    return {listener.upper() for listener in listeners}


def _listening(config: BrokerConfig) -> dict[str, ListenerEndpoint]:
    return {endpoint.listener: endpoint for endpoint in config.endpoints}


def _advertised(config: BrokerConfig) -> dict[str, ListenerEndpoint]:
    return {endpoint.listener: endpoint for endpoint in config.advertised_endpoints}


def _joined(listeners: Iterable[str]) -> str:
    return ",".join(listeners)


def _no_quorum(config: BrokerConfig) -> bool:
    return not config.voters and not config.bootstrap_controllers


def _voter_ids(config: BrokerConfig) -> str:
    return "Set(" + ", ".join(str(voter.node_id) for voter in config.voters) + ")"


def _is_voter(config: BrokerConfig) -> bool:
    return config.node_id in {voter.node_id for voter in config.voters}


def _only_broker(config: BrokerConfig) -> bool:
    return config.is_broker and not config.is_controller


def _only_controller(config: BrokerConfig) -> bool:
    return config.is_controller and not config.is_broker


def _cordoned_outside(config: BrokerConfig) -> list[str]:
    if config.cordoned_log_dirs == ("*",):
        return []
    return [path for path in config.cordoned_log_dirs if path not in config.data_directories]


def _bad_counts(config: BrokerConfig) -> list[str]:
    """Return the counts of max.connections.per.ip.overrides that are not numbers."""
    entries = config.max_connections_per_ip_overrides.split(",")
    counts = [entry.rpartition(":")[2].strip() for entry in entries if entry.strip()]
    return [count for count in counts if not count.isdecimal() or int(count) > _MAX_INT]


_MAX_INT = 2**31 - 1
_ROLES = ("process.roles", "listeners", "controller.listener.names")
_ADVERTISED = ("advertised.listeners", "listeners", "listener.security.protocol.map")

_LOG_RULES = (
    SettingsRule(
        ("broker.id", "node.id"),
        lambda config: config.node_id != config.broker_id,
        "You must set `node.id` to the same value as `broker.id`.",
    ),
    SettingsRule(
        ("log.roll.ms", "log.roll.hours"),
        lambda config: config.roll_time_ms < 1,
        "log.roll.ms must be greater than or equal to 1",
    ),
    SettingsRule(
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        lambda config: config.roll_jitter_time_ms < 0,
        "log.roll.jitter.ms must be greater than or equal to 0",
    ),
    SettingsRule(
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        lambda config: config.retention_time_ms == 0,
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    ),
    SettingsRule(
        ("log.dirs", "log.dir"),
        lambda config: not config.data_directories,
        "At least one log directory must be defined via log.dirs or log.dir.",
    ),
    SettingsRule(
        ("log.cleaner.threads",),
        lambda config: config.log_cleaner_enable and config.log_cleaner_threads == 0,
        "log.cleaner.threads must be at least 1 while the log cleaner is enabled.",
    ),
    SettingsRule(
        ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"),
        lambda config: (
            config.log_cleaner_enable
            and config.log_cleaner_threads > 0
            and config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads <= 1 << 20
        ),
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    ),
    SettingsRule(
        ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
        lambda config: config.replica_fetch_wait_max_ms > config.replica_socket_timeout_ms,
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent "
        "unnecessary socket timeouts",
    ),
    SettingsRule(
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
        lambda config: config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms,
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms "
        "to prevent frequent changes in ISR",
    ),
    SettingsRule(
        ("cordoned.log.dirs",),
        lambda config: "*" in config.cordoned_log_dirs and len(config.cordoned_log_dirs) > 1,
        "When cordoned.log.dirs is set to *, it must not contain other values",
    ),
    SettingsRule(
        ("cordoned.log.dirs", "log.dirs", "log.dir"),
        lambda config: "*" not in config.cordoned_log_dirs and bool(_cordoned_outside(config)),
        lambda config: (
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(_cordoned_outside(config))}"
        ),
    ),
)

_ROLE_RULES = (
    SettingsRule(
        ("process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers"),
        _no_quorum,
        "If using process.roles, either controller.quorum.bootstrap.servers must contain the set "
        "of bootstrap controllers or controller.quorum.voters must contain a parseable set of "
        "controllers.",
    ),
    SettingsRule(
        ("process.roles", "node.id", "controller.quorum.voters"),
        lambda config: _only_broker(config) and _is_voter(config),
        lambda config: (
            f"If process.roles contains just the 'broker' role, the node id {config.node_id} must "
            "not be included in the set of voters controller.quorum.voters="
            f"{_voter_ids(config)}"
        ),
    ),
    SettingsRule(
        ("controller.listener.names", "process.roles"),
        lambda config: _only_broker(config) and not config.controller_listener_names,
        "controller.listener.names must contain at least one value when running KRaft with just "
        "the broker role",
    ),
    SettingsRule(
        _ROLES,
        lambda config: _only_broker(config) and bool(config.controller_endpoints),
        "controller.listener.names must not contain a value appearing in the 'listeners' "
        "configuration when running KRaft with just the broker role",
    ),
    SettingsRule(
        ("controller.quorum.auto.join.enable", "process.roles"),
        lambda config: config.controller_quorum_auto_join_enable and not config.is_controller,
        "controller.quorum.auto.join.enable is only supported when process.roles contains the "
        "'controller' role.",
    ),
    SettingsRule(
        _ROLES,
        lambda config: _only_controller(config) and bool(config.broker_endpoints),
        "The listeners config must only contain KRaft controller listeners from "
        "controller.listener.names when process.roles=controller",
    ),
    SettingsRule(
        ("process.roles", "node.id", "controller.quorum.voters"),
        lambda config: config.is_controller and bool(config.voters) and not _is_voter(config),
        lambda config: (
            f"If process.roles contains the 'controller' role, the node id {config.node_id} must "
            f"be included in the set of voters controller.quorum.voters={_voter_ids(config)}"
        ),
    ),
    SettingsRule(
        ("controller.listener.names", "listeners", "process.roles"),
        lambda config: config.is_controller and not config.controller_endpoints,
        "controller.listener.names must contain at least one value appearing in the 'listeners' "
        "configuration when running the KRaft controller role",
    ),
    SettingsRule(
        ("controller.listener.names", "listeners", "process.roles"),
        lambda config: (
            config.is_controller
            and bool(config.controller_endpoints)
            and not _names(config.controller_listener_names) <= _listening(config).keys()
        ),
        "controller.listener.names must only contain values appearing in the 'listeners' "
        "configuration when running the KRaft controller role",
    ),
    SettingsRule(
        ("advertised.listeners", *_ROLES),
        lambda config: config.is_broker and not config.advertised_endpoints,
        lambda config: (
            "There must be at least one broker advertised listener."
            + (
                " Perhaps all listeners appear in controller.listener.names?"
                if config.is_controller
                else ""
            )
        ),
    ),
)

_LISTENER_RULES = (
    SettingsRule(
        ("inter.broker.listener.name", *_ADVERTISED, *_ROLES),
        lambda config: (
            config.is_broker
            and bool(config.advertised_endpoints)
            and config.inter_broker_endpoint_name not in _advertised(config)
        ),
        lambda config: (
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are "
            f"{_joined(_advertised(config))}"
        ),
    ),
    SettingsRule(
        _ADVERTISED,
        lambda config: not _advertised(config).keys() <= _listening(config).keys(),
        lambda config: (
            "advertised.listeners listener names must be equal to or a subset of the ones defined "
            f"in listeners. Found {_joined(_advertised(config))}. The valid options based on the "
            f"current configuration are {_joined(_listening(config))}"
        ),
    ),
    SettingsRule(
        _ADVERTISED,
        lambda config: any(endpoint.host == "0.0.0.0" for endpoint in config.advertised_endpoints),  # noqa: S104 - the address is refused here
        "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP "
        "address.",
    ),
    SettingsRule(
        ("queued.max.request.bytes", "socket.request.max.bytes"),
        lambda config: 0 < config.queued_max_request_bytes < config.socket_request_max_bytes,
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    ),
    SettingsRule(
        ("max.connections.per.ip", "max.connections.per.ip.overrides"),
        lambda config: (
            config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides
        ),
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
        "property is set.",
    ),
    SettingsRule(
        ("max.connections.per.ip.overrides",),
        lambda config: bool(_bad_counts(config)),
        lambda config: f'For input string: "{_bad_counts(config)[0]}"',
    ),
    SettingsRule(
        ("connection.failed.authentication.delay.ms", "connections.max.idle.ms"),
        lambda config: (
            0 <= config.connections_max_idle_ms <= config.connection_failed_authentication_delay_ms
        ),
        lambda config: (
            "connection.failed.authentication.delay.ms="
            f"{config.connection_failed_authentication_delay_ms} should always be less than "
            f"connections.max.idle.ms={config.connections_max_idle_ms} to prevent failed "
            "authentication responses from timing out"
        ),
    ),
)

PLAIN_RULES = frozenset({"max.connections.per.ip.overrides"})
"""Settings whose messages Kafka does not prefix with "requirement failed"."""

RULES = (*_group_rules(), *_LOG_RULES, *_ROLE_RULES, *_LISTENER_RULES)


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
