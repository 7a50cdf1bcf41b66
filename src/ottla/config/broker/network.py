"""Listeners, connections, the request path, and a broker's own security settings.

Kafka: org.apache.kafka.network.SocketServerConfigs;
org.apache.kafka.common.config.internals.BrokerSecurityConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.checks import (
    DISTINCT,
    DISTINCT_NON_EMPTY,
    DISTINCT_NON_EMPTY_OR_NULL,
    DISTINCT_OR_NULL,
    at_least,
    one_of,
)
from ottla.config.definition import (
    HIGH,
    LOW,
    MAX_INT,
    Bool,
    ClassName,
    ConfigTable,
    Int,
    Long,
    Names,
    Text,
    key,
)
from ottla.config.security import SecuritySettings

if TYPE_CHECKING:
    from ottla.config.secret import Secret


class NetworkSettings(ConfigTable):
    """Listeners of a node and their limits."""

    advertised_listeners: Names | None = key(
        None,
        "Addresses advertised to clients and other brokers; the listeners when not set.",
        DISTINCT_NON_EMPTY_OR_NULL,
        HIGH,
    )
    connection_failed_authentication_delay_ms: Int = key(
        100, "Delay of the response to a failed login.", at_least(0), LOW
    )
    connections_max_idle_ms: Long = key(
        600_000, "A connection without traffic for this long is closed."
    )
    connections_max_reauth_ms: Long = key(
        0, "Clients must log in again within this time; 0 disables it."
    )
    early_start_listeners: Names | None = key(
        None, "Listeners that open before the authorizer is ready.", DISTINCT_OR_NULL, HIGH
    )
    fetch_max_bytes: Int = key(57_671_680, "Maximum bytes of one fetch response.", at_least(1024))
    inter_broker_listener_name: Text | None = key(
        None, "Listener between brokers; instead of security.inter.broker.protocol."
    )
    listener_security_protocol_map: Text = key(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener name.",
        importance=LOW,
    )
    listeners: Names = key(
        ["PLAINTEXT://:9092"],
        "Addresses to listen on, as name://host:port.",
        DISTINCT_NON_EMPTY,
        HIGH,
    )
    max_connection_creation_rate: Int = key(MAX_INT, "New connections per second.", at_least(0))
    max_connections: Int = key(MAX_INT, "Connections at one time.", at_least(0))
    max_connections_per_ip: Int = key(
        MAX_INT, "Connections at one time from one address.", at_least(0)
    )
    max_connections_per_ip_overrides: Text = key(
        "", "Other limits for single addresses, as host:count."
    )
    max_incremental_fetch_session_cache_slots: Int = key(
        1000, "Fetch sessions remembered at once.", at_least(0)
    )
    max_request_partition_size_limit: Int = key(
        2000, "Maximum number of partitions in one DescribeTopicPartitions response.", at_least(1)
    )
    num_io_threads: Int = key(
        8, "Threads that serve requests, disk work included.", at_least(1), HIGH
    )
    num_network_threads: Int = key(
        3, "Threads of each listener that read and write its sockets.", at_least(1), HIGH
    )
    queued_max_request_bytes: Long = key(
        -1, "Bytes of waiting requests beyond which reading stops; -1 has no limit."
    )
    queued_max_requests: Int = key(
        500, "Waiting requests beyond which reading stops.", at_least(1), HIGH
    )
    request_timeout_ms: Int = key(
        30_000, "How long a request waits for its response.", importance=HIGH
    )
    socket_connection_setup_timeout_max_ms: Long = key(
        30_000, "Upper bound of the connection setup timeout, which grows with each attempt."
    )
    socket_connection_setup_timeout_ms: Long = key(10_000, "Initial connection setup timeout.")
    socket_listen_backlog_size: Int = key(
        50, "Connections that may wait to be accepted.", at_least(1)
    )
    socket_receive_buffer_bytes: Int = key(
        102_400, "Receive buffer of server sockets; -1 leaves it to the system.", importance=HIGH
    )
    socket_request_max_bytes: Int = key(104_857_600, "Largest request.", at_least(1), HIGH)
    socket_send_buffer_bytes: Int = key(
        102_400, "Send buffer of server sockets; -1 leaves it to the system.", importance=HIGH
    )
    telemetry_max_bytes: Int = key(
        1_048_576, "Largest metrics message of a client, as sent.", at_least(1), LOW
    )


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
