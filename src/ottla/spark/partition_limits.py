"""Limits of how many partitions topics may have that a streaming query reads.

Kafka: none; a topic that appears later makes Kafka Streams assign its tasks again, and check them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

EQUAL: Final = "equal"
Limit: TypeAlias = tuple[int, int] | Literal["equal"]
"""Allowed range of partition counts, or EQUAL: all topics of the pattern must have the same."""


def check_partitions(partitions: Mapping[str, int], limits: Mapping[str, Limit]) -> None:
    """Raise KafkaError(INVALID_PARTITIONS) for a topic with too few or too many partitions."""
    for pattern, limit in limits.items():
        counts = {name: count for name, count in partitions.items() if re.fullmatch(pattern, name)}
        fewest = min(counts.values(), default=0)
        least, most = (fewest, fewest) if limit == EQUAL else limit
        for name, count in counts.items():
            if not least <= count <= most:
                raise KafkaError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"topic {name!r} has {_number(count, count)}, where the query may read topics "
                    f"of {_number(least, most)} (partitionLimits)",
                )


def _number(least: int, most: int) -> str:
    count = str(least) if least == most else f"{least} to {most}"
    return f"{count} partition" if least == most == 1 else f"{count} partitions"
