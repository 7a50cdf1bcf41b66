"""TLS and SASL settings that brokers and clients share.

Kafka: org.apache.kafka.common.config.{SslConfigs, SaslConfigs, SecurityConfig}.
"""

from __future__ import annotations

from typing import Final

from ottla.config.checks import DISTINCT, between, one_of_any_case
from ottla.config.definition import (
    LOW,
    Bool,
    ClassName,
    ConfigTable,
    Double,
    Int,
    Long,
    Names,
    Short,
    Text,
    key,
)
from ottla.config.secret import Secret

ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES: Final = "org.apache.kafka.sasl.oauthbearer.allowed.files"
"""URLs and files allowed for OAUTHBEARER, none by default; Kafka reads Java system properties."""


class SecuritySettings(ConfigTable):
    """Encryption and authentication of connections."""

    sasl_client_callback_handler_class: ClassName | None = key(
        None, "Plug-in that gives a client its credentials."
    )
    sasl_jaas_config: Secret | None = key(None, "Login module and its options, in JAAS form.")
    sasl_kerberos_kinit_cmd: Text = key("/usr/bin/kinit", "Command that renews Kerberos tickets.")
    sasl_kerberos_min_time_before_relogin: Long = key(
        60_000, "Minimum time between two Kerberos logins, in milliseconds."
    )
    sasl_kerberos_service_name: Text | None = key(None, "Kerberos name under which brokers run.")
    sasl_kerberos_ticket_renew_jitter: Double = key(0.05, "Random part of the time to renewal.")
    sasl_kerberos_ticket_renew_window_factor: Double = key(
        0.8, "Part of a ticket's life after which it is renewed."
    )
    sasl_login_callback_handler_class: ClassName | None = key(
        None, "Plug-in that answers the login module."
    )
    sasl_login_class: ClassName | None = key(None, "Plug-in that logs in.")
    sasl_login_connect_timeout_ms: Int | None = key(
        None, "Time limit for reaching the identity provider.", importance=LOW
    )
    sasl_login_read_timeout_ms: Int | None = key(
        None, "Time limit for the identity provider's answer.", importance=LOW
    )
    sasl_login_refresh_buffer_seconds: Short = key(
        300, "Time before expiry by which a token should be renewed."
    )
    sasl_login_refresh_min_period_seconds: Short = key(60, "Minimum time between two renewals.")
    sasl_login_refresh_window_factor: Double = key(
        0.8, "Part of a token's life after which it is renewed."
    )
    sasl_login_refresh_window_jitter: Double = key(0.05, "Random part of the time to renewal.")
    sasl_login_retry_backoff_max_ms: Long = key(
        10_000, "Upper bound of the pause between login attempts.", importance=LOW
    )
    sasl_login_retry_backoff_ms: Long = key(
        100, "First pause between login attempts.", importance=LOW
    )
    sasl_oauthbearer_assertion_algorithm: Text = key(
        "RS256", "Signature of the client's own assertion.", one_of_any_case("ES256", "RS256")
    )
    sasl_oauthbearer_assertion_claim_aud: Text | None = key(None, "Audience in the assertion.")
    sasl_oauthbearer_assertion_claim_exp_seconds: Int = key(
        300, "Seconds the assertion is valid.", between(0, 86_400), LOW
    )
    sasl_oauthbearer_assertion_claim_iss: Text | None = key(None, "Issuer in the assertion.")
    sasl_oauthbearer_assertion_claim_jti_include: Bool = key(
        False, "Give each assertion its own id."
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: Int = key(
        60, "Seconds the assertion is valid before its time.", between(0, 3600), LOW
    )
    sasl_oauthbearer_assertion_claim_sub: Text | None = key(None, "Subject in the assertion.")
    sasl_oauthbearer_assertion_file: Text | None = key(None, "File with a ready-made assertion.")
    sasl_oauthbearer_assertion_private_key_file: Text | None = key(
        None, "Key file that signs the assertion."
    )
    sasl_oauthbearer_assertion_private_key_passphrase: Secret | None = key(
        None, "Passphrase of that key."
    )
    sasl_oauthbearer_assertion_template_file: Text | None = key(
        None, "File with fixed parts of the assertion."
    )
    sasl_oauthbearer_client_credentials_client_id: Text | None = key(
        None, "Client id at the identity provider."
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = key(
        None, "Client secret at the identity provider."
    )
    sasl_oauthbearer_clock_skew_seconds: Int = key(
        30, "Tolerated clock difference.", importance=LOW
    )
    sasl_oauthbearer_expected_audience: Names = key(
        [], "Audiences a token must name.", DISTINCT, LOW
    )
    sasl_oauthbearer_expected_issuer: Text | None = key(
        None, "Issuer a token must come from.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Long = key(
        3_600_000, "How often the provider's keys are fetched.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: Long = key(
        10_000, "Upper bound of the pause between attempts to fetch keys.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: Long = key(
        100, "First pause between attempts to fetch keys.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_url: Text | None = key(None, "URL of the provider's keys.")
    sasl_oauthbearer_jwt_retriever_class: ClassName = key(
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "Plug-in that obtains a token.",
    )
    sasl_oauthbearer_jwt_validator_class: ClassName = key(
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "Plug-in that checks a token.",
    )
    sasl_oauthbearer_scope: Text | None = key(None, "Requested scope.")
    sasl_oauthbearer_scope_claim_name: Text = key(
        "scope", "Claim that holds the scope.", importance=LOW
    )
    sasl_oauthbearer_sub_claim_name: Text = key("sub", "Claim that holds the user.", importance=LOW)
    sasl_oauthbearer_token_endpoint_url: Text | None = key(None, "URL that issues tokens.")
    ssl_cipher_suites: Names = key([], "Cipher suites that may be used; all when empty.", DISTINCT)
    ssl_enabled_protocols: Names = key(
        ["TLSv1.2", "TLSv1.3"], "TLS versions that may be used.", DISTINCT
    )
    ssl_endpoint_identification_algorithm: Text = key(
        "https", "How a server's name is checked; empty does not check.", importance=LOW
    )
    ssl_engine_factory_class: ClassName | None = key(
        None, "Plug-in that makes TLS engines.", importance=LOW
    )
    ssl_key_password: Secret | None = key(None, "Password of the private key.")
    ssl_keymanager_algorithm: Text = key("SunX509", "Algorithm of the key manager.")
    ssl_keystore_certificate_chain: Secret | None = key(None, "Certificate chain, as PEM text.")
    ssl_keystore_key: Secret | None = key(None, "Private key, as PEM text.")
    ssl_keystore_location: Text | None = key(None, "File with private key and certificates.")
    ssl_keystore_password: Secret | None = key(None, "Password of that file.")
    ssl_keystore_type: Text = key("JKS", "Format of that file.")
    ssl_protocol: Text = key("TLSv1.3", "TLS version of new engines.")
    ssl_provider: Text | None = key(None, "Security provider for TLS.")
    ssl_secure_random_implementation: Text | None = key(
        None, "Random source for TLS.", importance=LOW
    )
    ssl_trustmanager_algorithm: Text = key("PKIX", "Algorithm of the trust manager.")
    ssl_truststore_certificates: Secret | None = key(None, "Trusted certificates, as PEM text.")
    ssl_truststore_location: Text | None = key(None, "File with trusted certificates.")
    ssl_truststore_password: Secret | None = key(None, "Password of that file.")
    ssl_truststore_type: Text = key("JKS", "Format of that file.")
    security_providers: Text | None = key(None, "Security providers to register.", importance=LOW)
