"""Connections of Spark's driver and worker processes, whose errors name Spark's options.

Kafka: org.apache.spark.sql.kafka010.{KafkaOffsetReaderAdmin, ConsumerStrategy}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.clients.cluster_reader import ClusterReader
from ottla.clients.settings import COMMON, read_settings
from ottla.spark.options import with_option_names

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_ANSWER_MS: Final = 10_000
"""How long a user waits for a new read or query when no broker answers: a wrong address, mostly."""


def open_cluster(
    config: Mapping[str, str], *, api_timeout_ms: int = 60_000, first_answer_ms: int | None = None
) -> ClusterReader:
    """Return a reader with connection settings by Kafka's names.

    Without any answer the first call ends after `first_answer_ms`.
    """
    return ClusterReader(
        read_settings(COMMON, config, {}),
        api_timeout_ms=api_timeout_ms,
        first_answer_ms=first_answer_ms,
        describe=with_option_names,
    )
