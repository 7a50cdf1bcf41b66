"""All settings that exist in Ottla but not in Kafka; `OTTLA_…` variables set them.

Kafka: none.
"""

from __future__ import annotations

from ottla.config.disk_reserve import DiskReserveSettings
from ottla.config.limits import FailureDetectionSettings, KeyFileSettings, LimitSettings
from ottla.config.log_lines import LoggingSettings
from ottla.config.metrics import MetricsSettings


class OwnSettings(
    MetricsSettings,
    DiskReserveSettings,
    FailureDetectionSettings,
    KeyFileSettings,
    LimitSettings,
    LoggingSettings,
):
    """Ottla's own settings of a node; each base is one table."""
