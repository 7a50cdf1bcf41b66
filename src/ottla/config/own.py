"""All settings that Ottla has and Kafka has not, in one table: what variables `OTTLA_…` may name.

Kafka: none.
"""

from __future__ import annotations

from ottla.config.disk_reserve import DiskReserveSettings
from ottla.config.limits import LimitSettings
from ottla.config.metrics import MetricsSettings


class OwnSettings(MetricsSettings, DiskReserveSettings, LimitSettings):
    """The settings of one node that are ours; a new one is a table of its own, listed here."""
