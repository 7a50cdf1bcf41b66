"""Settings that ask for parts of Kafka which Ottla does not have yet: refused by name at start.

Kafka: nothing like it. Better no node than one that quietly leaves out security or replication
someone asked for. A part that is built takes its line out of the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.config.broker.endpoints import SecurityProtocol
from ottla.config.problems import ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.config.broker.config import BrokerConfig


class Refusal(NamedTuple):
    """A setting, when it asks for too much, and what it asks for."""

    name: str
    asked: Callable[[BrokerConfig], bool]
    part: str


def _set(name: str) -> Callable[[BrokerConfig], bool]:
    def asked(config: BrokerConfig) -> bool:
        value: Any = config.value(name)
        return bool(value) and value != config.keys[name].default

    return asked


def _secured(config: BrokerConfig) -> bool:
    return any(
        endpoint.security_protocol is not SecurityProtocol.PLAINTEXT
        for endpoint in (*config.endpoints, *config.advertised_endpoints)
    )


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        "process.roles",
        lambda config: not (config.is_broker and config.is_controller),
        "a node that is only a broker or only a controller",
    ),
    Refusal(
        "controller.quorum.voters",
        lambda config: len(config.voters) > 1,
        "a quorum of several controllers",
    ),
    Refusal(
        "controller.quorum.bootstrap.servers",
        lambda config: len(config.bootstrap_controllers) > 1,
        "a quorum of several controllers",
    ),
    Refusal("listeners", _secured, "TLS and SASL listeners"),
    Refusal(
        "security.inter.broker.protocol",
        lambda config: config.security_inter_broker_protocol.upper() != "PLAINTEXT",
        "TLS and SASL between brokers",
    ),
    Refusal("authorizer.class.name", _set("authorizer.class.name"), "authorization"),
    Refusal("delegation.token.secret.key", _set("delegation.token.secret.key"), "tokens"),
    Refusal(
        "remote.log.storage.system.enable",
        _set("remote.log.storage.system.enable"),
        "tiered storage",
    ),
    Refusal("client.quota.callback.class", _set("client.quota.callback.class"), "quota plug-ins"),
    Refusal("config.providers", _set("config.providers"), "configuration providers"),
)


def unsupported_settings(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield a problem for each setting that asks for a part which is not built."""
    for name, asked, part in REFUSALS:
        if asked(config):
            text = config.text(name)
            shown = "[hidden]" if config.keys[name].sensitive else text
            message = f"{name}={shown} asks for {part}, which Ottla does not have yet"
            yield ConfigProblem(name, shown, message)
