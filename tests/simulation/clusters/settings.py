"""Changes of settings: some matter to nothing, others change what brokers do under faults."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.clients.admin.configs import ConfigResource, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from ottla.clients.admin.admin import AsyncAdmin

_BROKERS = ConfigResource(ResourceType.BROKER, "")
"""The dynamic settings of all brokers."""
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_THROTTLED = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
_FEATURES = {"transaction.version": 2, "share.version": 1}
"""The highest levels of the features that can be lowered while clients use them."""
_UPGRADE, _SAFE_DOWNGRADE = 1, 2
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


async def change_what_runs(admin: AsyncAdmin, rng: Random, topics: Iterable[str]) -> None:
    """Change the number of fetchers, the throttles of replication or a topic's min ISR."""
    rate = str(rng.choice((2_000, 50_000, 1_000_000)))
    topic = ConfigResource(ResourceType.TOPIC, rng.choice(sorted(topics)))
    kind = rng.choice(("fetchers", "throttles", "min ISR"))
    if kind == "fetchers":
        await admin.alter_configs({_BROKERS: {"num.replica.fetchers": str(rng.randrange(1, 4))}})
    elif kind == "min ISR":
        await admin.alter_configs({topic: {"min.insync.replicas": str(rng.choice((2, 3)))}})
    else:
        await admin.alter_configs({_BROKERS: dict.fromkeys(_RATES, rate)})
        await admin.alter_configs({topic: dict.fromkeys(_THROTTLED, "*")})


async def change_features(admin: AsyncAdmin, rng: Random) -> None:
    """Raise or lower the level of a feature that clients use."""
    name = rng.choice(sorted(_FEATURES))
    await _set_feature(admin, name, rng.randrange(_FEATURES[name] + 1))


async def _set_feature(admin: AsyncAdmin, name: str, level: int) -> None:
    finalized = (await admin.describe_features()).finalized.get(name)
    present = 0 if finalized is None else finalized.highest
    if level != present:
        how = _UPGRADE if level > present else _SAFE_DOWNGRADE
        await admin.update_features({name: level}, upgrade_type=how)


async def restore_what_runs(admin: AsyncAdmin, topics: Iterable[str]) -> None:
    """Take back all changes of `change_what_runs`, and raise the features to the full."""
    for name, level in _FEATURES.items():
        await _set_feature(admin, name, level)
    without = dict.fromkeys((*_THROTTLED, "min.insync.replicas"))
    changes: dict[ConfigResource, dict[str, str | None]] = {
        ConfigResource(ResourceType.TOPIC, topic): {**without} for topic in topics
    }
    changes[_BROKERS] = dict.fromkeys((*_RATES, "num.replica.fetchers"))
    await admin.alter_configs(changes)
