"""Limits of how many partitions topics may have that a streaming query reads.

Kafka: none; a topic that appears later makes Kafka Streams assign its tasks again, and check them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.spark.cluster import TopicLayout


def check_partitions(
    topics: Mapping[str, TopicLayout], limits: Mapping[str, tuple[int, int]]
) -> None:
    """Raise KafkaError(INVALID_PARTITIONS) for a topic with too few or too many partitions."""
    for pattern, (least, most) in limits.items():
        for name, topic in topics.items():
            count = len(topic.leaders)
            if re.fullmatch(pattern, name) and not least <= count <= most:
                raise KafkaError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"topic {name!r} has {_number(count, count)}, where the query may read topics "
                    f"of {_number(least, most)} (partitionLimits)",
                )


def _number(least: int, most: int) -> str:
    count = str(least) if least == most else f"{least} to {most}"
    return f"{count} partition" if least == most == 1 else f"{count} partitions"
