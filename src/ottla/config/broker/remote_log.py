"""Tiered storage.

Kafka: org.apache.kafka.server.log.remote.storage.RemoteLogManagerConfig,
metadata.storage.TopicBasedRemoteLogMetadataManagerConfig.
"""

from __future__ import annotations

from ottla.config.checks import NON_EMPTY, at_least, between
from ottla.config.definition import (
    LOW,
    MAX_LONG,
    Bool,
    ConfigTable,
    Double,
    Int,
    Long,
    Short,
    Text,
    key,
)

METADATA_CLIENTS = {
    name: f"remote.log.metadata.{name}."
    for name in ("common.client", "producer", "consumer", "admin")
}
"""How the names of their settings begin; what follows is a setting of a client."""


class RemoteLogSettings(ConfigTable):
    """Copying segments to remote storage and reading them."""

    follower_fetch_last_tiered_offset_enable: Bool = key(
        False, "Let an empty follower start after the data in remote storage."
    )
    remote_fetch_max_wait_ms: Int = key(
        500, "How long a fetch waits for remote storage.", at_least(1)
    )
    remote_list_offsets_request_timeout_ms: Long = key(
        30_000, "How long ListOffsets waits for remote storage.", at_least(1)
    )
    remote_log_index_file_cache_total_size_bytes: Long = key(
        1_073_741_824, "Space for cached indexes of remote segments.", at_least(1), LOW
    )
    remote_log_index_file_cache_ttl_ms: Long = key(
        900_000, "How long an unused cached index is kept.", at_least(-1), LOW, internal=True
    )
    remote_log_manager_copier_thread_pool_size: Int = key(
        10, "Threads that copy segments to remote storage.", at_least(1)
    )
    remote_log_manager_copy_max_bytes_per_second: Long = key(
        MAX_LONG, "Rate of copying to remote storage.", at_least(1)
    )
    remote_log_manager_copy_quota_window_num: Int = key(
        11, "Sample windows kept for that rate.", at_least(1)
    )
    remote_log_manager_copy_quota_window_size_seconds: Int = key(
        1, "Length of one of those windows.", at_least(1)
    )
    remote_log_manager_expiration_thread_pool_size: Int = key(
        10, "Threads that delete expired remote segments.", at_least(1)
    )
    remote_log_manager_fetch_max_bytes_per_second: Long = key(
        MAX_LONG, "Rate of reading from remote storage.", at_least(1)
    )
    remote_log_manager_fetch_quota_window_num: Int = key(
        11, "Sample windows kept for that rate.", at_least(1)
    )
    remote_log_manager_fetch_quota_window_size_seconds: Int = key(
        1, "Length of one of those windows.", at_least(1)
    )
    remote_log_manager_follower_thread_pool_size: Int = key(
        2, "Threads for followers of tiered partitions.", at_least(1)
    )
    remote_log_manager_task_interval_ms: Long = key(
        30_000, "How often segments are checked for copying and deletion.", at_least(1), LOW
    )
    remote_log_manager_task_retry_backoff_max_ms: Long = key(
        30_000,
        "Upper bound of the exponential backoff between retries.",
        at_least(1),
        LOW,
        internal=True,
    )
    remote_log_manager_task_retry_backoff_ms: Long = key(
        500, "First pause between retries of a remote task.", at_least(1), LOW, internal=True
    )
    remote_log_manager_task_retry_jitter: Double = key(
        0.2, "Random part of that pause.", between(0, 0.5), LOW, internal=True
    )
    remote_log_manager_thread_pool_size: Int = key(
        2, "Threads for other work on remote storage.", at_least(1)
    )
    remote_log_metadata_custom_metadata_max_bytes: Int = key(
        128, "Largest custom metadata of a remote segment.", at_least(0), LOW
    )
    remote_log_metadata_manager_class_name: Text = key(
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "Plug-in that stores the metadata of remote segments.",
        NON_EMPTY,
    )
    remote_log_metadata_manager_class_path: Text | None = key(None, "Class path of that plug-in.")
    remote_log_metadata_manager_impl_prefix: Text = key(
        "rlmm.config.", "Prefix of that plug-in's own settings.", NON_EMPTY
    )
    remote_log_metadata_manager_listener_name: Text | None = key(
        None, "Listener that plug-in uses to reach the brokers.", NON_EMPTY
    )
    remote_log_reader_max_pending_tasks: Int = key(
        100, "Reads of remote storage that may wait.", at_least(1)
    )
    remote_log_reader_threads: Int = key(10, "Threads that read remote storage.", at_least(1))
    remote_log_storage_manager_class_name: Text | None = key(
        None, "Plug-in that stores segments remotely.", NON_EMPTY
    )
    remote_log_storage_manager_class_path: Text | None = key(None, "Class path of that plug-in.")
    remote_log_storage_manager_impl_prefix: Text = key(
        "rsm.config.", "Prefix of that plug-in's own settings.", NON_EMPTY
    )
    remote_log_storage_system_enable: Bool = key(False, "Enable tiered storage.")


class RemoteMetadataSettings(ConfigTable):
    """The store of remote segments' metadata; given after its prefix, `rlmm.config.`."""

    remote_log_metadata_topic_replication_factor: Short = key(
        3, "Replicas of the topic of metadata.", at_least(1), LOW
    )
    remote_log_metadata_topic_num_partitions: Int = key(
        50, "Partitions of that topic; fixed once it exists.", at_least(1), LOW
    )
    remote_log_metadata_topic_retention_ms: Long = key(
        -1, "How long its records are kept; longer than any tiered topic's.", importance=LOW
    )
    remote_log_metadata_topic_min_isr: Short = key(
        2, "Replicas in sync that a write to it needs.", at_least(1), LOW
    )
    remote_log_metadata_consume_wait_ms: Long = key(
        120_000, "How long a write may take to be read back.", at_least(0), LOW
    )
    remote_log_metadata_initialization_retry_max_timeout_ms: Long = key(
        120_000, "How long the start tries to make the topic.", at_least(0), LOW
    )
    remote_log_metadata_initialization_retry_interval_ms: Long = key(
        100, "Pause between those tries.", at_least(0), LOW
    )
