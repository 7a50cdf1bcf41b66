"""Whether a running broker could take over changed settings: the whole must still be legal.

Kafka: org.apache.kafka.server.config.DynamicBrokerConfig.validate with its BrokerReconfigurables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.config.broker.rules import PLAIN_RULES, broken_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.broker import BrokerConfig

_THREADS: Final = (
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
)
_CLEANER_THREADS: Final = "log.cleaner.threads"


def refusal(static: BrokerConfig, current: BrokerConfig, changes: Mapping[str, str]) -> str | None:
    """Say in Kafka's words why a broker started with `static` could not run with these changes.

    `changes` are all stored settings as they would be, the cluster's below the broker's own.
    """
    proposed = static.with_dynamic(changes, strict=True)
    nameless = [one for one in proposed.listeners if "://" not in one]
    if nameless:
        return f"Unable to parse a listener name from {nameless[0]}"
    if proposed.address_problems:
        return proposed.address_problems[0].message
    broken = next(broken_rules(proposed, set()), None)
    if broken is not None:
        plain = broken.name in PLAIN_RULES
        return broken.message if plain else f"requirement failed: {broken.message}"
    reason = _thread_reason(current, proposed) or _cleaner_reason(current, proposed)
    return None if reason is None else wrapped(reason)


def wrapped(reason: str) -> str:
    """Put a reason into the sentence that Kafka makes of an exception in an exception."""
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
