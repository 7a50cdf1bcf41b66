"""Checks of the logins and certificates in settings, before a node uses them.

Kafka: kafka.server.KafkaConfig.validateValues, DynamicBrokerConfig's DynamicListenerConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.listener_settings import ListenerSettings
from ottla.config.problems import ConfigProblem
from ottla.errors import ConfigError
from ottla.network.tls_context import exposed_key, identity_change, identity_of, server_context
from ottla.network.token_retrieval import TOKEN_URL, token_retriever
from ottla.security.distinguished_name import parse_rules
from ottla.security.sasl.gssapi import GSSAPI
from ottla.security.sasl.oauthbearer import OAUTHBEARER
from ottla.security.sasl.plain import PLAIN
from ottla.security.sasl.scram import HASHES
from ottla.server.node.listener_security import (
    JAAS,
    MAPPING_RULES,
    MECHANISMS,
    SASL_PROTOCOLS,
    SUPPORTED,
    TLS_PROTOCOLS,
    jaas_options,
    kerberos_settings,
    listener_tls,
)
from ottla.server.node.login_handlers import handler_name, token_problems
from ottla.server.node.peer_token import peer_token_settings
from ottla.server.system.kerberos import acceptor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.config.broker import BrokerConfig


def security_problems(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield the problems of the logins and certificates of listeners."""
    yield from _peer_problems(config)
    for endpoint in config.endpoints:
        settings = ListenerSettings(config, endpoint.listener)
        if endpoint.security_protocol in SASL_PROTOCOLS:
            yield from _login_problems(settings)
        if endpoint.security_protocol in TLS_PROTOCOLS:
            try:
                tls = listener_tls(settings)
                server_context(tls)
                exposed = exposed_key(tls.keys)
                if exposed and config.own.ssl_keystore_require_private:
                    yield ConfigProblem("listeners", str(endpoint), exposed)
                parse_rules(settings.value(MAPPING_RULES))
            except ValueError as error:
                text = f"listener {endpoint.listener}: {error}"
                yield ConfigProblem("listeners", str(endpoint), text)


def security_refusal(current: BrokerConfig, proposed: BrokerConfig) -> str | None:
    """Return why changed settings leave a listener without certificates or a usable login.

    A listener's new certificate must name the same node.
    """
    found = next((one.message for one in security_problems(proposed)), None)
    if found is not None:
        return found
    known = {endpoint.listener for endpoint in current.endpoints}
    for endpoint in proposed.endpoints:
        if endpoint.listener in known and endpoint.security_protocol in TLS_PROTOCOLS:
            before, after = (
                listener_tls(ListenerSettings(config, endpoint.listener))
                for config in (current, proposed)
            )
            refusal = before.keys != after.keys and identity_change(
                identity_of(before.keys),
                identity_of(after.keys),
                allows_dn=after.allows_dn_changes,
                allows_san=after.allows_san_changes,
            )
            if refusal:
                return refusal
    return None


def _peer_problems(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield the problems of this node's own logins at other nodes."""
    controllers = next(iter(config.controller_listener_names or ()), "").upper()
    is_quorum = len(config.voters) > 1 or len(config.bootstrap_controllers) > 1
    for listener, key in (
        (config.inter_broker_endpoint_name, "sasl.mechanism.inter.broker.protocol"),
        (controllers, "sasl.mechanism.controller.protocol"),
    ):
        if config.security_protocols.get(listener) not in SASL_PROTOCOLS:
            continue
        mechanism = config.value(key)
        if mechanism not in SUPPORTED:
            text = f"{key}={mechanism} is not supported, use one of {', '.join(SUPPORTED)}"
            yield ConfigProblem(key, mechanism, text)
            continue
        if mechanism == OAUTHBEARER:
            yield from _token_problems(ListenerSettings(config, listener))
            continue
        if mechanism == GSSAPI:
            settings = ListenerSettings(config, listener)
            is_own = listener in {one.listener for one in config.endpoints}
            if not is_own or GSSAPI not in settings.value(MECHANISMS):
                yield from _kerberos_problems(settings, key)
            continue  # otherwise reported with the listener
        if listener == controllers and mechanism in HASHES and is_quorum:
            text = (
                f"{key}={mechanism}: the voters of a quorum cannot log in with credentials that "
                "are in the metadata log, which they would wait for; use PLAIN or TLS"
            )
            yield ConfigProblem(key, mechanism, text)
        try:
            options = jaas_options(ListenerSettings(config, listener), mechanism)
        except ValueError:
            continue  # reported with the listener
        if not {"username", "password"} <= set(options):
            name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"
            text = f"{name} must have username and password: this node logs in at other nodes"
            yield ConfigProblem(name, None, text)


def _token_problems(settings: ListenerSettings) -> Iterator[ConfigProblem]:
    """Yield why this node cannot get a token for other nodes."""
    try:
        token_retriever(peer_token_settings(lambda: settings, None))
    except ConfigError as error:
        yield ConfigProblem(TOKEN_URL, settings.value(TOKEN_URL, OAUTHBEARER), str(error))
    except ValueError:
        return  # of the JAAS text, reported with the listener


def _kerberos_problems(settings: ListenerSettings, key: str) -> Iterator[ConfigProblem]:
    """Yield why GSSAPI cannot be used on a listener: the extra, the keytab, a rule."""
    try:
        acceptor(kerberos_settings(settings))
    except ConfigError as error:
        text = f"{key}: {GSSAPI} for listener {settings.listener}: {error}"
        yield ConfigProblem(key, GSSAPI, text)
    except ValueError:
        return  # of the JAAS text, reported with the listener


def _login_problems(settings: ListenerSettings) -> Iterator[ConfigProblem]:
    names = settings.value(MECHANISMS)
    shown = ",".join(names)
    unsupported = [name for name in names if name not in SUPPORTED]
    if unsupported:
        text = (
            f"{MECHANISMS}={shown} for listener {settings.listener}: {', '.join(unsupported)} is "
            f"not supported, use some of {', '.join(SUPPORTED)}"
        )
        yield ConfigProblem(MECHANISMS, shown, text)
    if OAUTHBEARER in names and handler_name(settings, OAUTHBEARER) is None:
        yield from token_problems(settings)
    if GSSAPI in names:
        yield from _kerberos_problems(settings, MECHANISMS)
    for name in names:
        key = f"{settings.prefix}{name.lower()}.{JAAS}"
        try:
            options = jaas_options(settings, name)
        except ValueError as error:
            yield ConfigProblem(key, "[hidden]", f"{key}: {error}")
            continue
        if (
            name == PLAIN
            and handler_name(settings, PLAIN) is None
            and not any(option.startswith("user_") for option in options)
        ):
            text = f'{key} must name users, as user_alice="password" of the PlainLoginModule'
            yield ConfigProblem(key, None, text)
