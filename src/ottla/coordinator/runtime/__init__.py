"""The runtime shared by all coordinators: replay, commit, revert, loading, timers."""

from ottla.coordinator.runtime.log import CoordinatorLog
from ottla.coordinator.runtime.runtime import CoordinatorRuntime
from ottla.coordinator.runtime.shard import (
    CoordinatorRecord,
    EndTransaction,
    Result,
    Shard,
    ShardEnvironment,
    ShardTimers,
    TransactionalProducer,
)

__all__ = [
    "CoordinatorLog",
    "CoordinatorRecord",
    "CoordinatorRuntime",
    "EndTransaction",
    "Result",
    "Shard",
    "ShardEnvironment",
    "ShardTimers",
    "TransactionalProducer",
]
