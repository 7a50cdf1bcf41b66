"""Replication and purgatories.

Kafka: org.apache.kafka.server.config.ReplicationConfigs.
"""

from __future__ import annotations

from ottla.config.checks import at_least
from ottla.config.definition import HIGH, Bool, ConfigTable, Int, Long, Text, key

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
