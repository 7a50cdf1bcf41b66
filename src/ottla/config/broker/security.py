"""A broker's own security settings.

Kafka: org.apache.kafka.common.config.internals.BrokerSecurityConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.checks import DISTINCT, at_least, one_of
from ottla.config.definition import HIGH, LOW, Bool, ClassName, Int, Long, Names, Text, key
from ottla.config.security import SecuritySettings

if TYPE_CHECKING:
    from ottla.config.secret import Secret


class BrokerSecuritySettings(SecuritySettings):
    """Authentication and authorization by a broker."""

    authorizer_class_name: Text = key(
        "",
        "Plug-in that authorizes requests; empty allows everything.",
        importance=LOW,
    )
    delegation_token_expiry_check_interval_ms: Long = key(
        3_600_000, "How often expired delegation tokens are removed.", at_least(1), LOW
    )
    delegation_token_expiry_time_ms: Long = key(
        86_400_000, "A token expires after this time unless it is renewed.", at_least(1)
    )
    delegation_token_max_lifetime_ms: Long = key(
        604_800_000, "Age beyond which a token cannot be renewed.", at_least(1)
    )
    delegation_token_secret_key: Secret | None = key(
        None, "Secret that signs delegation tokens; identical on all nodes."
    )
    principal_builder_class: ClassName = key(
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "Plug-in that names the user behind a connection.",
    )
    sasl_enabled_mechanisms: Names = key(["GSSAPI"], "Login mechanisms a broker offers.", DISTINCT)
    sasl_kerberos_principal_to_local_rules: Names = key(
        ["DEFAULT"], "Rules that shorten Kerberos principals to user names.", DISTINCT
    )
    sasl_mechanism_controller_protocol: Text = key(
        "GSSAPI", "Login mechanism towards controllers.", importance=HIGH
    )
    sasl_mechanism_inter_broker_protocol: Text = key("GSSAPI", "Login mechanism between brokers.")
    sasl_server_callback_handler_class: ClassName | None = key(
        None, "Plug-in that checks credentials on a broker."
    )
    sasl_server_max_receive_size: Int = key(524_288, "Largest login message a broker accepts.")
    security_inter_broker_protocol: Text = key(
        "PLAINTEXT",
        "Security protocol between brokers.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    ssl_allow_dn_changes: Bool = key(
        False, "A new certificate may have another distinguished name.", importance=LOW
    )
    ssl_allow_san_changes: Bool = key(
        False, "A new certificate may have other alternative names.", importance=LOW
    )
    ssl_client_auth: Text = key(
        "none", "Whether clients must show a certificate.", one_of("required", "requested", "none")
    )
    ssl_principal_mapping_rules: Text = key(
        "DEFAULT", "Rules that shorten certificate names to user names.", importance=LOW
    )
