"""The runtime shared by all coordinators: replay, commit, revert, loading, timers."""

from ottla.coordinator.runtime.log import CoordinatorLog
from ottla.coordinator.runtime.result import (
    CoordinatorRecord,
    EndTransaction,
    Result,
    TransactionalProducer,
)
from ottla.coordinator.runtime.runtime import CoordinatorRuntime
from ottla.coordinator.runtime.shard import Shard, ShardEnvironment
from ottla.coordinator.runtime.timers import ShardTimers

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
