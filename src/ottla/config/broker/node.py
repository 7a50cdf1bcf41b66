"""The node itself: roles, number, rack, limits and plug-ins.

Kafka: org.apache.kafka.raft.KRaftConfigs, org.apache.kafka.server.config.ServerConfigs.
"""

from __future__ import annotations

from ottla.config.checks import DISTINCT, at_least, entries_of
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
