"""The node itself, the quorum of controllers and its metadata log.

Kafka: org.apache.kafka.raft.{QuorumConfig, MetadataLogConfig}, KRaftConfigs;
org.apache.kafka.raft.KRaftConfigs, org.apache.kafka.server.config.ServerConfigs.
"""

from __future__ import annotations

from ottla.config.checks import DISTINCT, DISTINCT_NON_EMPTY, at_least, entries_of
from ottla.config.definition import (
    HIGH,
    LOW,
    MAX_LONG,
    REQUIRED,
    Bool,
    ClassName,
    ConfigTable,
    Int,
    Long,
    Names,
    Text,
    key,
)


class NodeSettings(ConfigTable):
    """Identity and roles of this node."""

    alter_config_policy_class_name: ClassName | None = key(
        None, "Plug-in that may refuse a change of configuration.", importance=LOW
    )
    auto_create_topics_enable: Bool = key(
        True,
        "Create a topic when a client requests the metadata of an unknown one.",
        importance=HIGH,
    )
    background_threads: Int = key(
        10, "Threads for work outside the request path.", at_least(1), HIGH
    )
    broker_heartbeat_interval_ms: Int = key(
        2000, "Time between a broker's heartbeats to the controller."
    )
    broker_id: Int = key(
        -1, "Older name of node.id; both must be equal when both are given.", importance=HIGH
    )
    broker_rack: Text | None = key(
        None,
        "The rack or zone of this broker, used to spread replicas and to fetch from near ones.",
    )
    broker_session_timeout_ms: Int = key(
        9000, "A broker without a heartbeat for this long is fenced."
    )
    config_providers: Names = key(
        [], "Names of the providers that resolve ${provider:path:key} in values.", DISTINCT, LOW
    )
    controlled_shutdown_enable: Bool = key(True, "Move leaderships away before the broker stops.")
    create_topic_policy_class_name: ClassName | None = key(
        None, "Plug-in that may refuse a new topic.", importance=LOW
    )
    delete_topic_enable: Bool = key(True, "Allow topics to be deleted.", importance=HIGH)
    initial_broker_registration_timeout_ms: Int = key(
        60_000, "A broker that is not registered within this time stops."
    )
    node_id: Int = key(REQUIRED, "This node's number in the cluster.", at_least(0), HIGH)
    num_partitions: Int = key(
        1, "Partitions of a topic created without a partition count.", at_least(1)
    )
    process_roles: Names = key(
        REQUIRED,
        "Roles of this node: broker, controller or both.",
        entries_of("broker", "controller", empty_allowed=False),
        HIGH,
    )
    server_max_startup_time_ms: Long = key(
        MAX_LONG, "A node that is not ready within this time stops.", at_least(0), internal=True
    )
    unstable_api_versions_enable: Bool = key(
        False, "Offer API versions that are still being developed.", importance=HIGH, internal=True
    )
    unstable_feature_versions_enable: Bool = key(
        False,
        "Allow feature versions that are still being developed.",
        importance=HIGH,
        internal=True,
    )


class QuorumSettings(ConfigTable):
    """Quorum of controllers and retention of the metadata log."""

    auto_leader_rebalance_enable: Bool = key(
        True, "Move leadership back to the preferred replicas periodically.", importance=HIGH
    )
    controller_listener_names: Names = key(
        REQUIRED,
        "Listeners that controllers serve; other nodes use the first one to reach them.",
        DISTINCT_NON_EMPTY,
        HIGH,
    )
    controller_performance_always_log_threshold_ms: Long = key(
        2000, "Controller events slower than this are always logged.", at_least(0), internal=True
    )
    controller_performance_sample_period_ms: Long = key(
        60_000, "How often the controller logs its slowest events.", at_least(100), internal=True
    )
    controller_quorum_append_linger_ms: Int = key(
        25, "How long the quorum leader collects records before it writes them.", at_least(0)
    )
    controller_quorum_auto_join_enable: Bool = key(
        False, "Let a new controller add itself to the voters.", importance=LOW
    )
    controller_quorum_bootstrap_servers: Names = key(
        [], "host:port addresses of controllers to find the quorum with.", importance=HIGH
    )
    controller_quorum_election_backoff_max_ms: Int = key(
        1000, "Upper bound of the exponential backoff between lost elections.", at_least(0), HIGH
    )
    controller_quorum_election_timeout_ms: Int = key(
        1000, "A candidate that has not won within this time retries.", at_least(0), HIGH
    )
    controller_quorum_fetch_max_bytes: Int = key(
        1_048_576, "Maximum bytes of the metadata log in one response.", at_least(1), LOW
    )
    controller_quorum_fetch_snapshot_max_bytes: Int = key(
        1_048_576, "Maximum bytes of a metadata snapshot in one response.", at_least(1), LOW
    )
    controller_quorum_fetch_timeout_ms: Int = key(
        2000,
        "Without contact for this long voters start an election and an isolated leader resigns.",
        at_least(0),
        HIGH,
    )
    controller_quorum_request_timeout_ms: Int = key(
        2000, "A quorum request without a response for this long fails.", at_least(0)
    )
    controller_quorum_retry_backoff_ms: Int = key(
        20, "Pause before a failed quorum request is sent again.", at_least(0), LOW
    )
    controller_quorum_voters: Names = key(
        [],
        "Static voters as id@host:port; leave empty for a quorum that can change.",
        importance=HIGH,
    )
    controller_quota_window_num: Int = key(
        11, "Sample windows kept for the quota on topic changes.", at_least(1), LOW
    )
    controller_quota_window_size_seconds: Int = key(
        1, "Length of one of those windows.", at_least(1), LOW
    )
    controller_socket_timeout_ms: Int = key(
        30_000, "Time limit of requests from a broker to the controller."
    )
    internal_metadata_delete_delay_millis: Long = key(
        60_000,
        "Delay before old metadata segments and snapshots are removed.",
        importance=LOW,
        internal=True,
    )
    internal_metadata_log_segment_bytes: Int | None = key(
        None, "Segment size of the metadata log, for tests.", importance=LOW, internal=True
    )
    internal_metadata_max_batch_size_in_bytes: Int = key(
        8_388_608, "Largest batch of metadata records, for tests.", importance=LOW, internal=True
    )
    leader_imbalance_check_interval_seconds: Long = key(
        300,
        "How often the controller checks for leaders that are not the preferred replicas.",
        at_least(1),
        HIGH,
    )
    metadata_log_dir: Text | None = key(
        None,
        "Directory of the metadata log; the first log directory when not set.",
        importance=HIGH,
    )
    metadata_log_max_record_bytes_between_snapshots: Long = key(
        20_971_520, "Bytes of metadata records after which a snapshot is made.", at_least(1), HIGH
    )
    metadata_log_max_snapshot_interval_ms: Long = key(
        3_600_000,
        "Time after which a snapshot is made when there are new records; 0 never.",
        at_least(0),
        HIGH,
    )
    metadata_log_segment_bytes: Int = key(
        1_073_741_824, "Segment size of the metadata log.", at_least(8_388_608), HIGH
    )
    metadata_log_segment_ms: Long = key(
        604_800_000, "Time before a new segment of the metadata log is rolled.", importance=HIGH
    )
    metadata_max_idle_interval_ms: Int = key(
        500, "How often an idle controller writes a no-op record; 0 never.", at_least(0), LOW
    )
    metadata_max_retention_bytes: Long = key(
        104_857_600, "Bytes of metadata log and snapshots to keep.", importance=HIGH
    )
    metadata_max_retention_ms: Long = key(
        604_800_000, "Time to keep metadata log and snapshots.", importance=HIGH
    )
    unclean_leader_election_interval_ms: Long = key(
        300_000,
        "How often the controller checks for partitions that need an unclean election.",
        at_least(1),
        internal=True,
    )
