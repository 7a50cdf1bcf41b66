"""Quota windows and metrics.

Kafka: org.apache.kafka.server.config.QuotaConfig, org.apache.kafka.server.metrics.MetricConfigs.
"""

from __future__ import annotations

from ottla.config.checks import DISTINCT, at_least
from ottla.config.definition import LOW, ClassName, ConfigTable, Int, Long, Names, Text, key


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
