"""The security settings of a listener.

Kafka: org.apache.kafka.common.network.ChannelBuilders, .security.JaasContext.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.config.broker.endpoints import SecurityProtocol
from ottla.network.kerberos import SERVICE_NAME, Renewal
from ottla.network.tls_context import tls_settings
from ottla.security.jaas import parse_jaas
from ottla.security.kerberos_names import RULES
from ottla.security.sasl.gssapi import GSSAPI
from ottla.security.sasl.oauthbearer import OAUTHBEARER
from ottla.security.sasl.plain import PLAIN
from ottla.security.sasl.scram import HASHES
from ottla.server.system.kerberos import KerberosSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.listener_settings import ListenerSettings
    from ottla.network.tls_context import TlsSettings

JAAS: Final = "sasl.jaas.config"
MECHANISMS: Final = "sasl.enabled.mechanisms"
MAPPING_RULES: Final = "ssl.principal.mapping.rules"
SUPPORTED: Final = (PLAIN, *HASHES, OAUTHBEARER, GSSAPI)
SASL_PROTOCOLS: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
TLS_PROTOCOLS: Final = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
_CLIENT_AUTH: Final = "ssl.client.auth"


def listener_tls(settings: ListenerSettings) -> TlsSettings:
    """Return the TLS settings of a listener.

    Clients of SASL_SSL are named by SASL: as in Kafka, ssl.client.auth then applies only as a
    setting of the listener itself.
    """
    protocol = settings.config.security_protocols[settings.listener]
    own = settings.own(_CLIENT_AUTH)
    is_named = protocol in SASL_PROTOCOLS
    client_auth = own or ("none" if is_named else settings.config.ssl_client_auth)
    made = tls_settings(settings.value, client_auth)
    return made._replace(
        allows_dn_changes=settings.value("ssl.allow.dn.changes"),
        allows_san_changes=settings.value("ssl.allow.san.changes"),
    )


def jaas_options(settings: ListenerSettings, mechanism: str) -> Mapping[str, str]:
    """Return the options of a mechanism's JAAS text; ValueError for an invalid one."""
    text = settings.own(JAAS, mechanism)
    return {} if text is None else parse_jaas(text.reveal()).options


def kerberos_settings(settings: ListenerSettings) -> KerberosSettings:
    """Return a listener's Kerberos settings; ValueError for an invalid JAAS text."""
    renewal = Renewal(
        settings.value("sasl.kerberos.ticket.renew.window.factor"),
        settings.value("sasl.kerberos.ticket.renew.jitter"),
        settings.value("sasl.kerberos.min.time.before.relogin") / 1000,
    )
    return KerberosSettings(
        jaas_options(settings, GSSAPI),
        settings.value(SERVICE_NAME),
        settings.value(RULES),
        renewal,
    )
