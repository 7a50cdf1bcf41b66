"""Settings that require features Ottla does not implement yet; a node with them does not start.

Kafka: no counterpart. A node must not silently ignore settings of security or replication. When a
feature is implemented, its line is removed from the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.config.broker.replication import RACK_AWARE_SELECTOR
from ottla.config.problems import ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.config.broker.config import BrokerConfig


STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Refusal(NamedTuple):
    """A setting, the condition under which it is refused, and the feature it requires."""

    name: str
    requires: Callable[[BrokerConfig], bool]
    part: str


def _set(name: str) -> Callable[[BrokerConfig], bool]:
    def requires(config: BrokerConfig) -> bool:
        value: Any = config.value(name)
        return bool(value) and value != config.keys[name].default

    return requires


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        "remote.log.storage.system.enable",
        _set("remote.log.storage.system.enable"),
        "tiered storage",
    ),
    Refusal(
        "remote.log.metadata.manager.class.name",
        lambda config: (
            config.remote_log_storage_system_enable
            and _set("remote.log.metadata.manager.class.name")(config)
        ),
        "another store of remote segments' metadata than Kafka's topic",
    ),
    Refusal("client.quota.callback.class", _set("client.quota.callback.class"), "quota plug-ins"),
    Refusal(
        "replica.selector.class",
        lambda config: (
            (config.replica_selector_class or RACK_AWARE_SELECTOR) != RACK_AWARE_SELECTOR
        ),
        f"a replica selector other than {RACK_AWARE_SELECTOR}",
    ),
)


def unsupported_settings(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield a problem for each setting that requires a feature that is not implemented."""
    for name, requires, part in REFUSALS:
        if requires(config):
            text = config.text(name)
            shown = "[hidden]" if config.keys[name].sensitive else text
            message = f"{name}={shown} requires {part}, which Ottla does not implement yet"
            yield ConfigProblem(name, shown, message)
