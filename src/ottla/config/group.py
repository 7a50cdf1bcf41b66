"""Settings of one group, and of a subscription to clients' metrics.

Kafka: org.apache.kafka.coordinator.group.GroupConfig, ClientMetricsConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.checks import DISTINCT, SHARE_OFFSET_RESET, at_least, one_of
from ottla.config.definition import Bool, ConfigTable, Int, Names, Text, key

if TYPE_CHECKING:
    import regex


class GroupConfig(ConfigTable):
    """Settings of one group; the broker gives the defaults."""

    consumer_assignment_interval_ms: Int = key(
        1000, "Minimum time between two assignments of the consumer group.", at_least(0)
    )
    consumer_heartbeat_interval_ms: Int = key(
        5000, "Heartbeat interval of the consumer group's members.", at_least(1)
    )
    consumer_session_timeout_ms: Int = key(
        45_000, "A consumer without a heartbeat for this long is removed.", at_least(1)
    )
    share_assignment_interval_ms: Int = key(
        1000, "Minimum time between two assignments of the share group.", at_least(0)
    )
    share_auto_offset_reset: Text = key(
        "latest", "Where the share group starts to read.", SHARE_OFFSET_RESET
    )
    share_delivery_count_limit: Int = key(
        5, "How often a record is delivered before it is archived.", at_least(2)
    )
    share_heartbeat_interval_ms: Int = key(
        5000, "Heartbeat interval of the share group's members.", at_least(1)
    )
    share_isolation_level: Text = key(
        "read_uncommitted",
        "Whether records of open or aborted transactions are delivered.",
        one_of("read_committed", "read_uncommitted"),
    )
    share_partition_max_record_locks: Int = key(
        2000,
        "Maximum number of records of one partition that are locked for delivery.",
        at_least(100),
    )
    share_record_lock_duration_ms: Int = key(
        30_000, "How long a delivered record stays locked for its reader.", at_least(1000)
    )
    share_renew_acknowledge_enable: Bool = key(True, "Allow readers to renew their locks.")
    share_session_timeout_ms: Int = key(
        45_000, "A share consumer without a heartbeat for this long is removed.", at_least(1)
    )
    streams_assignment_interval_ms: Int = key(
        1000, "Minimum time between two assignments of the streams group.", at_least(0)
    )
    streams_heartbeat_interval_ms: Int = key(
        5000, "Heartbeat interval of the streams group's members.", at_least(1)
    )
    streams_initial_rebalance_delay_ms: Int = key(
        3000, "How long the new streams group waits for more members.", at_least(0)
    )
    streams_num_standby_replicas: Int = key(0, "Standby copies of each task.", at_least(0))
    streams_session_timeout_ms: Int = key(
        45_000, "A streams client without a heartbeat for this long is removed.", at_least(1)
    )


CLIENT_ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""Client attributes that a subscription can match."""


def client_pattern(text: str) -> tuple[str, regex.Pattern[str]] | None:
    """Parse an attribute and a regular expression, `client_id=app-.*`; None when invalid.

    Pass a timeout to `fullmatch`: an expression may backtrack exponentially.
    """
    import regex  # imported late: only needed for subscriptions to client metrics

    parts = text.rstrip("=").split("=")
    if len(parts) != 2 or parts[0].strip() not in CLIENT_ATTRIBUTES:
        return None
    try:
        return parts[0].strip(), regex.compile(parts[1].strip())
    except (
        regex.error,
        OverflowError,
        RecursionError,
    ):  # the last two: patterns that are too large or too deeply nested
        return None


class ClientMetricsConfig(ConfigTable):
    """One subscription to clients' metrics (KIP-714)."""

    interval_ms: Int = key(300_000, "How often matching clients push their metrics.")
    match: Names = key([], "Clients that match, as key=pattern pairs.", DISTINCT)
    metrics: Names = key(
        [], "Prefixes of the requested metrics; * for all, empty for none.", DISTINCT
    )
