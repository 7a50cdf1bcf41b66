"""Replication, purgatories, and windows of quotas and metrics.

Kafka: org.apache.kafka.server.config.ReplicationConfigs;
org.apache.kafka.server.config.QuotaConfig, org.apache.kafka.server.metrics.MetricConfigs.
"""

from __future__ import annotations

from ottla.config.checks import DISTINCT, at_least
from ottla.config.definition import (
    HIGH,
    LOW,
    Bool,
    ClassName,
    ConfigTable,
    Int,
    Long,
    Names,
    Text,
    key,
)

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicationSettings(ConfigTable):
    """Fetching by followers."""

    default_replication_factor: Int = key(
        1, "Replicas of a topic created without a replication factor."
    )
    delete_records_purgatory_purge_interval_requests: Int = key(
        1, "Waiting DeleteRecords requests after which finished ones are purged."
    )
    fetch_purgatory_purge_interval_requests: Int = key(
        1000, "Waiting fetches after which finished ones are purged."
    )
    num_replica_alter_log_dirs_threads: Int | None = key(
        None, "Threads that move replicas between directories.", importance=HIGH
    )
    num_replica_fetchers: Int = key(1, "Fetchers towards each other broker.", at_least(1), HIGH)
    producer_purgatory_purge_interval_requests: Int = key(
        1000, "Waiting produce requests after which finished ones are purged."
    )
    replica_fetch_backoff_ms: Int = key(
        1000, "Pause after a partition failed to fetch.", at_least(0)
    )
    replica_fetch_max_bytes: Int = key(
        1_048_576, "Bytes a follower fetches from one partition.", at_least(0)
    )
    replica_fetch_min_bytes: Int = key(
        1, "Bytes for which a leader delays a follower's fetch.", importance=HIGH
    )
    replica_fetch_response_max_bytes: Int = key(
        10_485_760, "Bytes a follower fetches in one response.", at_least(0)
    )
    replica_fetch_wait_max_ms: Int = key(
        500, "How long a leader may delay a follower's fetch.", importance=HIGH
    )
    replica_high_watermark_checkpoint_interval_ms: Long = key(
        5000, "How often high watermarks are checkpointed.", importance=HIGH
    )
    replica_lag_time_max_ms: Long = key(
        30_000, "A follower that lags for this long leaves the in-sync replicas.", importance=HIGH
    )
    replica_selector_class: Text | None = key(
        None, "Plug-in that chooses the replica a consumer reads from."
    )
    replica_socket_receive_buffer_bytes: Int = key(
        65_536, "Socket buffer of followers.", importance=HIGH
    )
    replica_socket_timeout_ms: Int = key(
        30_000, "Time limit of a follower's requests.", importance=HIGH
    )
    unclean_leader_election_enable: Bool = key(
        False,
        "Let a replica that is not in sync lead when no other is left; records may be lost.",
        importance=HIGH,
    )


class QuotaSettings(ConfigTable):
    """Windows over which quotas are measured."""

    alter_log_dirs_replication_quota_window_num: Int = key(
        11, "Sample windows kept for the quota on moves between log directories.", at_least(1), LOW
    )
    alter_log_dirs_replication_quota_window_size_seconds: Int = key(
        1, "Length of one of those windows.", at_least(1), LOW
    )
    client_quota_callback_class: ClassName | None = key(
        None, "Plug-in that computes client quotas instead of the stored ones.", importance=LOW
    )
    quota_window_num: Int = key(11, "Sample windows kept for client quotas.", at_least(1), LOW)
    quota_window_size_seconds: Int = key(1, "Length of one of those windows.", at_least(1), LOW)
    replication_quota_window_num: Int = key(
        11, "Sample windows kept for replication quotas.", at_least(1), LOW
    )
    replication_quota_window_size_seconds: Int = key(
        1, "Length of one of those windows.", at_least(1), LOW
    )


class MetricSettings(ConfigTable):
    """Metrics and their reporters."""

    kafka_metrics_polling_interval_secs: Int = key(
        10, "How often Yammer metrics reporters are polled.", at_least(1), LOW
    )
    kafka_metrics_reporters: Names = key([], "Yammer metrics reporters.", DISTINCT, LOW)
    metric_reporters: Names = key(
        ["org.apache.kafka.common.metrics.JmxReporter"],
        "Plug-ins that receive the metrics.",
        DISTINCT,
        LOW,
    )
    metrics_num_samples: Int = key(2, "Samples kept for a windowed metric.", at_least(1), LOW)
    metrics_recording_level: Text = key(
        "INFO", "Most detailed level of metrics that are recorded.", importance=LOW
    )
    metrics_sample_window_ms: Long = key(30_000, "Length of a metric's sample.", at_least(1), LOW)
