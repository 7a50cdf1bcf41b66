"""Validates dynamic changes of a running broker: the resulting configuration must be valid.

Kafka: org.apache.kafka.server.config.DynamicBrokerConfig.validate with its BrokerReconfigurables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.config.broker.rules import PLAIN_RULES, broken_rules
from ottla.config.broker.unsupported import unsupported_settings
from ottla.config.topic import local_retention_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.config.broker import BrokerConfig

_THREADS: Final = (
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "remote.log.reader.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
)
_CHANGING: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
_CHANGING_PREFIX: Final = "ssl."
"""Listener settings that may change while the listener is open."""
_CLEANER_THREADS: Final = "log.cleaner.threads"


def refusal(static: BrokerConfig, current: BrokerConfig, changes: Mapping[str, str]) -> str | None:
    """Return why a broker started with `static` cannot apply these changes, in Kafka's words.

    `changes` are all stored settings after the change; the broker's override the cluster's.
    """
    proposed = static.with_dynamic(changes, strict=True)
    nameless = [listener for listener in proposed.listeners if "://" not in listener]
    if nameless:
        return f"Unable to parse a listener name from {nameless[0]}"
    if proposed.address_problems:
        return proposed.address_problems[0].message
    broken = next(broken_rules(proposed, set()), None)
    if broken is not None:
        plain = broken.name in PLAIN_RULES
        return broken.message if plain else f"requirement failed: {broken.message}"
    reason = (
        _thread_reason(current, proposed)
        or _cleaner_reason(current, proposed)
        or next((problem.message for problem in local_retention_problems(proposed, "log.")), None)
        or _listener_reason(current, proposed)
    )
    if reason is not None:
        return wrapped(reason)
    return next(
        (
            problem.message
            for problem in unsupported_settings(proposed)
            if problem.name == "listeners"
        ),
        None,
    )


def wrapped(reason: str) -> str:
    """Wrap a reason as Kafka does with an exception in an exception."""
    return (
        f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} for "
        "configuration Invalid dynamic configuration"
    )


def _thread_reason(current: BrokerConfig, proposed: BrokerConfig) -> str | None:
    for name in _THREADS:
        old, new = current.value(name), proposed.value(name)
        begin = f"Dynamic thread count update validation failed for {name}={new}"
        if new < old // 2:
            return f"{begin}, value should be at least half the current value {old}"
        if new > old * 2:
            return f"{begin}, value should not be greater than double the current value {old}"
    return None


def _cleaner_reason(current: BrokerConfig, proposed: BrokerConfig) -> str | None:
    old, new = current.value(_CLEANER_THREADS), proposed.value(_CLEANER_THREADS)
    if new < old // 2:
        return f"Log cleaner threads cannot be reduced to less than half the current value {old}"
    if new > old * 2:
        return (
            f"Log cleaner threads cannot be increased to more than double the current value {old}"
        )
    return None


def _listener_reason(current: BrokerConfig, proposed: BrokerConfig) -> str | None:
    if (proposed.listeners, proposed.security_protocols) == (
        current.listeners,
        current.security_protocols,
    ):
        return None  # as in Kafka, which validates listeners only when one of these two changes
    old = {endpoint.listener: endpoint for endpoint in current.endpoints}
    new = {endpoint.listener: endpoint for endpoint in proposed.endpoints}
    advertised = [endpoint.listener for endpoint in current.advertised_endpoints]
    if not new.keys() >= set(advertised):
        return (
            f"Advertised listeners '{_scala_set(advertised)}' must be a subset of listeners "
            f"'{_scala_set(new)}'"
        )
    for name in (name for name in new if name in old):
        if _fixed_settings(current, name) != _fixed_settings(proposed, name):
            return (
                "Configs cannot be updated dynamically for existing listener "
                f"ListenerName({name}), restart broker or create a new listener for update"
            )
        if old[name].security_protocol != new[name].security_protocol:
            return f"Security protocol cannot be updated for existing listener ListenerName({name})"
    return None


def _scala_set(names: Iterable[str]) -> str:
    """Format listener names as Kafka formats its sets."""
    return f"Set({', '.join(f'ListenerName({name})' for name in names)})"


def _fixed_settings(config: BrokerConfig, listener: str) -> dict[str, str]:
    """Return the settings of one listener that cannot change while it is open."""
    prefix = f"listener.name.{listener.lower()}."
    return {
        name: str(value)
        for name, value in {**config.given, **config.overrides}.items()
        if name.startswith(prefix)
        and not name.removeprefix(prefix).startswith(_CHANGING_PREFIX)
        and name.removeprefix(prefix) not in _CHANGING
    }
