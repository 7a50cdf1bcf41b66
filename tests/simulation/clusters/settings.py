"""Changes of topics' settings that matter to nothing: metadata for quorums that do not agree."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.clients.admin.configs import ConfigResource, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from ottla.clients.admin.admin import AsyncAdmin

_NAMES = (
    "delete.retention.ms",
    "file.delete.delay.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
)


async def change_settings(
    admin: AsyncAdmin, rng: Random, topics: Iterable[str], count: int, *, timeout_s: float = 5.0
) -> None:
    """Send so many changes at once, each of several records; KafkaError when one fails."""
    changes = [
        {
            ConfigResource(ResourceType.TOPIC, topic): {
                name: str(1_000_000_000 + rng.randrange(1_000_000)) for name in _NAMES
            }
            for topic in topics
        }
        for _ in range(count)
    ]
    await asyncio.gather(*(admin.alter_configs(one, timeout=timeout_s) for one in changes))
