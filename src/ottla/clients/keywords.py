"""The clients' settings as typed keyword arguments, for editors and type checkers.

Names and types follow `ottla.config.client`; a test compares them (tests/clients/test_keywords.py).
What a setting means is said there and in docs/configuration.md.

Kafka: org.apache.kafka.clients.{CommonClientConfigs, producer.ProducerConfig,
consumer.ConsumerConfig, admin.AdminClientConfig}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from ssl import SSLContext

Serializer: TypeAlias = str | Callable[[Any], bytes | None]
"""A built-in serializer's name, or a function."""
Deserializer: TypeAlias = str | Callable[[bytes], Any]
"""A built-in deserializer's name, or a function."""


class ClientSettings(TypedDict, total=False):
    """Settings that all clients have."""

    bootstrap_servers: str | Sequence[str]
    client_dns_lookup: Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
    client_id: str
    config_providers: str | Sequence[str]
    connections_max_idle_ms: int
    enable_metrics_push: bool
    metadata_max_age_ms: int
    metadata_recovery_rebootstrap_trigger_ms: int
    metadata_recovery_strategy: Literal["REBOOTSTRAP", "NONE", "rebootstrap", "none"]
    metric_reporters: str | Sequence[str]
    metrics_num_samples: int
    metrics_recording_level: Literal["INFO", "DEBUG", "TRACE"]
    metrics_sample_window_ms: int
    receive_buffer_bytes: int
    reconnect_backoff_max_ms: int
    reconnect_backoff_ms: int
    request_timeout_ms: int
    retry_backoff_max_ms: int
    retry_backoff_ms: int
    org_apache_kafka_sasl_oauthbearer_allowed_files: str | None
    org_apache_kafka_sasl_oauthbearer_allowed_urls: str | None
    sasl_client_callback_handler_class: str | None
    sasl_jaas_config: str | None
    sasl_kerberos_kinit_cmd: str
    sasl_kerberos_min_time_before_relogin: int
    sasl_kerberos_service_name: str | None
    sasl_kerberos_ticket_renew_jitter: float
    sasl_kerberos_ticket_renew_window_factor: float
    sasl_login_callback_handler_class: str | None
    sasl_login_class: str | None
    sasl_login_connect_timeout_ms: int | None
    sasl_login_read_timeout_ms: int | None
    sasl_login_refresh_buffer_seconds: int
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_retry_backoff_max_ms: int
    sasl_login_retry_backoff_ms: int
    sasl_mechanism: str
    sasl_oauthbearer_assertion_algorithm: Literal["ES256", "RS256", "es256", "rs256"]
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_template_file: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_clock_skew_seconds: int
    sasl_oauthbearer_expected_audience: str | Sequence[str]
    sasl_oauthbearer_expected_issuer: str | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int
    sasl_oauthbearer_jwks_endpoint_url: str | None
    sasl_oauthbearer_jwt_retriever_class: str
    sasl_oauthbearer_jwt_validator_class: str
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_scope_claim_name: str
    sasl_oauthbearer_sub_claim_name: str
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_password: str | None
    sasl_username: str | None
    security_protocol: Literal[
        "SASL_SSL",
        "PLAINTEXT",
        "SSL",
        "SASL_PLAINTEXT",
        "sasl_ssl",
        "plaintext",
        "ssl",
        "sasl_plaintext",
    ]
    security_providers: str | None
    send_buffer_bytes: int
    socket_connection_setup_timeout_max_ms: int
    socket_connection_setup_timeout_ms: int
    ssl_cipher_suites: str | Sequence[str]
    ssl_context: SSLContext | None
    ssl_enabled_protocols: str | Sequence[str]
    ssl_endpoint_identification_algorithm: str
    ssl_engine_factory_class: str | None
    ssl_key_password: str | None
    ssl_keymanager_algorithm: str
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_type: str
    ssl_protocol: str
    ssl_provider: str | None
    ssl_secure_random_implementation: str | None
    ssl_trustmanager_algorithm: str
    ssl_truststore_certificates: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_type: str


class ProducerSettings(ClientSettings, total=False):
    """A producer's settings."""

    acks: Literal["all", "-1", "0", "1", -1, 0, 1]
    batch_size: int
    buffer_memory: int
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    compression_zstd_level: int
    delivery_timeout_ms: int
    enable_idempotence: bool
    interceptor_classes: object
    key_serializer: Serializer | None
    linger_ms: int
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    metadata_max_idle_ms: int
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_class: str | Callable[[str, bytes | None, int], int] | type | None
    partitioner_ignore_keys: bool
    retries: int
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool
    transactional_id: str | None
    value_serializer: Serializer | None


class ConsumerSettings(ClientSettings, total=False):
    """A consumer's settings."""

    allow_auto_create_topics: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    check_crcs: bool
    client_rack: str
    default_api_timeout_ms: int
    enable_auto_commit: bool
    exclude_internal_topics: bool
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["CONSUMER", "CLASSIC", "consumer", "classic"]
    group_remote_assignor: str | None
    heartbeat_interval_ms: int
    interceptor_classes: object
    isolation_level: Literal["read_committed", "read_uncommitted"]
    key_deserializer: Deserializer | None
    max_partition_fetch_bytes: int
    max_poll_interval_ms: int
    max_poll_records: int
    partition_assignment_strategy: str | Sequence[str]
    session_timeout_ms: int
    share_acknowledgement_mode: str
    share_acquire_mode: str
    value_deserializer: Deserializer | None


class AdminSettings(ClientSettings, total=False):
    """An admin client's settings."""

    bootstrap_controllers: str | Sequence[str]
    default_api_timeout_ms: int
    retries: int
