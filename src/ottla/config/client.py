"""Settings of the clients.

Kafka: CommonClientConfigs, ProducerConfig, ConsumerConfig, AdminClientConfig.
"""

from __future__ import annotations

from ottla.config.checks import (
    ACKNOWLEDGEMENT_MODE,
    ACQUIRE_MODE,
    CONSUMER_OFFSET_RESET,
    DISTINCT,
    DISTINCT_NON_EMPTY,
    GZIP_LEVEL,
    NON_EMPTY,
    at_least,
    between,
    one_of,
    one_of_any_case,
)
from ottla.config.definition import (
    HIGH,
    LOW,
    MAX_INT,
    REQUIRED,
    Bool,
    ClassName,
    Double,
    Int,
    Long,
    Names,
    Short,
    Text,
    key,
)
from ottla.config.security import SecuritySettings


class ClientConfig(SecuritySettings):
    """Settings that all clients have."""

    client_dns_lookup: Text = key(
        "use_all_dns_ips",
        "How host names with several addresses are used.",
        one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    )
    client_id: Text = key("", "Name of this client in logs, metrics and quotas.")
    config_providers: Names = key(
        [], "Names of the providers that resolve ${provider:path:key} in values.", DISTINCT, LOW
    )
    metadata_max_age_ms: Long = key(
        300_000, "Metadata older than this is refreshed.", at_least(0), LOW
    )
    metadata_recovery_rebootstrap_trigger_ms: Long = key(
        300_000,
        "Without metadata for this long the client starts again from bootstrap.servers.",
        at_least(0),
        LOW,
    )
    metadata_recovery_strategy: Text = key(
        "rebootstrap",
        "What to do when no known broker answers.",
        one_of_any_case("REBOOTSTRAP", "NONE"),
        LOW,
    )
    metric_reporters: Names = key(
        ["org.apache.kafka.common.metrics.JmxReporter"],
        "Plug-ins that receive the metrics.",
        DISTINCT,
        LOW,
    )
    metrics_num_samples: Int = key(2, "Samples kept for a windowed metric.", at_least(1), LOW)
    metrics_recording_level: Text = key(
        "INFO",
        "Most detailed level of metrics that are recorded.",
        one_of("INFO", "DEBUG", "TRACE"),
        LOW,
    )
    metrics_sample_window_ms: Long = key(30_000, "Length of a metric's sample.", at_least(0), LOW)
    reconnect_backoff_max_ms: Long = key(
        1000, "Upper bound of the exponential backoff before reconnecting.", at_least(0), LOW
    )
    reconnect_backoff_ms: Long = key(50, "Initial backoff before reconnecting.", at_least(0), LOW)
    request_timeout_ms: Int = key(30_000, "How long a request waits for its response.", at_least(0))
    retry_backoff_max_ms: Long = key(
        1000, "Upper bound of the exponential backoff between retries.", at_least(0), LOW
    )
    retry_backoff_ms: Long = key(100, "Initial backoff between retries.", at_least(0), LOW)
    sasl_login_refresh_buffer_seconds: Short = key(
        300, "Time before expiry by which a token should be renewed.", between(0, 3600), LOW
    )
    sasl_login_refresh_min_period_seconds: Short = key(
        60, "Minimum time between two renewals.", between(0, 900), LOW
    )
    sasl_login_refresh_window_factor: Double = key(
        0.8, "Part of a token's life after which it is renewed.", between(0.5, 1.0), LOW
    )
    sasl_login_refresh_window_jitter: Double = key(
        0.05, "Random part of the time to renewal.", between(0.0, 0.25), LOW
    )
    sasl_mechanism: Text = key("GSSAPI", "Login mechanism.")
    sasl_oauthbearer_header_urlencode: Bool = key(
        False, "Encode client id and secret before they are sent.", importance=LOW
    )
    security_protocol: Text = key(
        "PLAINTEXT",
        "How brokers are reached: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        one_of_any_case("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"),
    )
    send_buffer_bytes: Int = key(
        131_072, "Send buffer of sockets; -1 leaves it to the system.", at_least(-1)
    )
    socket_connection_setup_timeout_max_ms: Long = key(
        30_000, "Upper bound of the connection setup timeout, which grows with each attempt."
    )
    socket_connection_setup_timeout_ms: Long = key(10_000, "Initial connection setup timeout.")


class ProducerConfig(ClientConfig):
    """A producer's settings."""

    acks: Text = key(
        "all",
        "Replicas that must have a record before it counts as sent: 0, 1 or all.",
        one_of("all", "-1", "0", "1"),
        LOW,
    )
    batch_size: Int = key(16_384, "Bytes of one partition's batch.", at_least(0))
    bootstrap_servers: Names = key(
        REQUIRED, "host:port addresses at which the cluster is found.", DISTINCT_NON_EMPTY, HIGH
    )
    buffer_memory: Long = key(
        33_554_432, "Bytes of records that may wait to be sent.", at_least(0), HIGH
    )
    compression_gzip_level: Int = key(-1, "Compression level of gzip.", GZIP_LEVEL)
    compression_lz4_level: Int = key(9, "Compression level of lz4.", between(1, 17))
    compression_type: Text = key(
        "none", "Codec of the batches sent.", one_of("none", "gzip", "snappy", "lz4", "zstd"), HIGH
    )
    compression_zstd_level: Int = key(3, "Compression level of zstd.", between(-131_072, 22))
    connections_max_idle_ms: Long = key(
        540_000, "A connection without traffic for this long is closed."
    )
    delivery_timeout_ms: Int = key(120_000, "Time limit from send to acknowledgement.", at_least(0))
    enable_idempotence: Bool = key(
        True, "Write each record exactly once, in order.", importance=LOW
    )
    enable_metrics_push: Bool = key(
        True, "Push metrics when the cluster requests them.", importance=LOW
    )
    interceptor_classes: Names = key([], "Plug-ins that intercept every record.", DISTINCT, LOW)
    key_serializer: ClassName = key(REQUIRED, "Turns a key into bytes.", importance=HIGH)
    linger_ms: Long = key(5, "How long a batch waits for more records.", at_least(0))
    max_block_ms: Long = key(60_000, "How long send and the like may block.", at_least(0))
    max_in_flight_requests_per_connection: Int = key(
        5, "Requests that may be unanswered on one connection.", at_least(1), LOW
    )
    max_request_size: Int = key(1_048_576, "Largest request.", at_least(0))
    metadata_max_idle_ms: Long = key(
        300_000, "Metadata of a topic unused for this long expires.", at_least(5000), LOW
    )
    partitioner_adaptive_partitioning_enable: Bool = key(
        True, "Send more to partitions whose brokers are fast.", importance=LOW
    )
    partitioner_availability_timeout_ms: Long = key(
        0, "A partition that is unavailable for this long is skipped; 0 never.", at_least(0), LOW
    )
    partitioner_class: ClassName | None = key(None, "Plug-in that chooses the partition.")
    partitioner_ignore_keys: Bool = key(False, "Choose the partition without the key.")
    receive_buffer_bytes: Int = key(
        32_768, "Receive buffer of sockets; -1 leaves it to the system.", at_least(-1)
    )
    retries: Int = key(
        MAX_INT, "How often a failed request is sent again.", between(0, MAX_INT), HIGH
    )
    transaction_timeout_ms: Int = key(
        60_000, "A transaction open for this long is aborted.", importance=LOW
    )
    transaction_two_phase_commit_enable: Bool = key(
        False, "An external coordinator decides the transactions.", importance=LOW
    )
    transactional_id: Text | None = key(
        None, "Name under which transactions survive restarts.", NON_EMPTY, LOW
    )
    value_serializer: ClassName = key(REQUIRED, "Turns a value into bytes.", importance=HIGH)


class ConsumerConfig(ClientConfig):
    """A consumer's settings."""

    allow_auto_create_topics: Bool = key(
        True, "Let the broker create topics this consumer subscribes to."
    )
    auto_commit_interval_ms: Int = key(
        5000, "How often positions are committed when that is automatic.", at_least(0), LOW
    )
    auto_offset_reset: Text = key(
        "latest", "Where to start when there is no committed offset.", CONSUMER_OFFSET_RESET
    )
    bootstrap_servers: Names = key(
        REQUIRED, "host:port addresses at which the cluster is found.", DISTINCT_NON_EMPTY, HIGH
    )
    check_crcs: Bool = key(True, "Check the checksum of every batch read.", importance=LOW)
    client_rack: Text = key(
        "", "The client's rack, for reading from a nearby replica.", importance=LOW
    )
    connections_max_idle_ms: Long = key(
        540_000, "A connection without traffic for this long is closed."
    )
    default_api_timeout_ms: Int = key(
        60_000, "Time limit of calls without an explicit timeout.", at_least(0)
    )
    enable_auto_commit: Bool = key(True, "Commit positions in the background.")
    enable_metrics_push: Bool = key(
        True, "Push metrics when the cluster requests them.", importance=LOW
    )
    exclude_internal_topics: Bool = key(
        True, "Exclude internal topics from subscriptions by pattern."
    )
    fetch_max_bytes: Int = key(52_428_800, "Bytes of one fetch response.", at_least(0))
    fetch_max_wait_ms: Int = key(500, "How long the broker may delay a fetch.", at_least(0), LOW)
    fetch_min_bytes: Int = key(1, "Bytes for which the broker delays a fetch.", at_least(0), HIGH)
    group_id: Text | None = key(None, "The consumer's group.", importance=HIGH)
    group_instance_id: Text | None = key(
        None, "Fixed name of this member, kept over restarts.", NON_EMPTY
    )
    group_protocol: Text = key(
        "classic",
        "Which group protocol is used: classic or consumer.",
        one_of_any_case("CONSUMER", "CLASSIC"),
        HIGH,
    )
    group_remote_assignor: Text | None = key(None, "Assignor the coordinator should use.")
    heartbeat_interval_ms: Int = key(
        3000, "Time between heartbeats of a classic member.", importance=HIGH
    )
    interceptor_classes: Names = key([], "Plug-ins that intercept every record.", DISTINCT, LOW)
    internal_throw_on_fetch_stable_offset_unsupported: Bool = key(
        False, "Fail when stable offsets cannot be fetched.", importance=LOW, internal=True
    )
    isolation_level: Text = key(
        "read_uncommitted",
        "Whether records of open or aborted transactions are read.",
        one_of("read_committed", "read_uncommitted"),
    )
    key_deserializer: ClassName = key(REQUIRED, "Turns key bytes into an object.", importance=HIGH)
    max_partition_fetch_bytes: Int = key(
        1_048_576, "Bytes of one partition in a fetch response.", at_least(0), HIGH
    )
    max_poll_interval_ms: Int = key(
        300_000, "A consumer that does not poll for this long leaves its group.", at_least(1)
    )
    max_poll_records: Int = key(500, "Records of one poll.", at_least(1))
    partition_assignment_strategy: Names = key(
        [
            "org.apache.kafka.clients.consumer.RangeAssignor",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        ],
        "Assignors of a classic group, in order of preference.",
        DISTINCT,
    )
    receive_buffer_bytes: Int = key(
        65_536, "Receive buffer of sockets; -1 leaves it to the system.", at_least(-1)
    )
    session_timeout_ms: Int = key(
        45_000, "A classic member without a heartbeat for this long is removed.", importance=HIGH
    )
    share_acknowledgement_mode: Text = key(
        "implicit",
        "Whether a share consumer acknowledges implicitly by polling or explicitly.",
        ACKNOWLEDGEMENT_MODE,
    )
    share_acquire_mode: Text = key(
        "BATCH_OPTIMIZED",
        "Whether a share consumer gets whole batches or at most a number of records.",
        ACQUIRE_MODE,
    )
    value_deserializer: ClassName = key(
        REQUIRED, "Turns value bytes into an object.", importance=HIGH
    )


class AdminConfig(ClientConfig):
    """An admin client's settings."""

    bootstrap_controllers: Names = key(
        [], "host:port addresses of controllers, instead of brokers.", DISTINCT, HIGH
    )
    bootstrap_servers: Names = key(
        [], "host:port addresses at which the cluster is found.", DISTINCT, HIGH
    )
    connections_max_idle_ms: Long = key(
        300_000, "A connection without traffic for this long is closed."
    )
    default_api_timeout_ms: Int = key(
        60_000, "Time limit of calls without an explicit timeout.", at_least(0)
    )
    enable_metrics_push: Bool = key(
        False, "Push metrics when the cluster requests them.", importance=LOW
    )
    receive_buffer_bytes: Int = key(
        65_536, "Receive buffer of sockets; -1 leaves it to the system.", at_least(-1)
    )
    retries: Int = key(
        MAX_INT, "How often a failed request is sent again.", between(0, MAX_INT), LOW
    )
