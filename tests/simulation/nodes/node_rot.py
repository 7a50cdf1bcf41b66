"""Rotten bits in the files that a node keeps for itself, while it is down.

- A batch of the metadata log: the start is refused, names the way out and changes no file; or the
  damage lies below a snapshot, and nothing is missing.
- The newest snapshot of the metadata log: an older one serves, or the log from its start. Where
  there is neither, the start is refused as above.
- A batch of a partition of `__consumer_offsets`: its groups get an error, never older offsets; all
  other groups and all topics are served. A restored file, or a log truncated at the damage, is
  served again.

Kafka: none; it truncates a damaged metadata log.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.layout import METADATA_LOG
from ottla.storage.log.inspection import inspect_log
from ottla.storage.log.repair import lower_checkpoints, truncate_log
from ottla.testing.disk import SimulatedCrash
from ottla.testing.simulation.node import DATA_PATH
from tests.simulation.nodes.rot import (
    Bit,
    flushed_batches,
    metadata_batches,
    segments,
    snapshots,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.nodes.model import GroupModel
    from tests.simulation.nodes.workload import Workload

_WAY_OUT = f"ottla log-repair --log-dir {DATA_PATH} --partition {METADATA_LOG}"


class NodeRot:
    """Damages the files of a workload's node; a random source of its own leaves others alone."""

    def __init__(self, workload: Workload, probability: float) -> None:
        """Take the probability with which a restart finds damage."""
        self.counts: dict[str, int] = {}
        """How often which file was damaged, and what came of it."""
        self._workload = workload
        self._simulation = workload.simulation
        self._disk = workload.simulation.disk
        self._probability = probability
        self._rng = Random(f"{workload.seed}/rot")
        self._damaged_snapshots: set[str] = set()
        self._has_damaged_log = False

    async def strike(self) -> bool:
        """Damage a file of the node that is down, sometimes; return whether the node is up then."""
        if self._rng.random() >= self._probability:
            return False
        self._disk.heal()
        kinds = (self._damage_metadata_log, self._damage_snapshot, self._damage_offsets)
        return await self._rng.choice(kinds)()

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def _damage_metadata_log(self) -> bool:
        choices = metadata_batches(self._disk)
        if not choices or self._damaged_snapshots or self._has_damaged_log:
            return False
        bit = self._rng.choice(choices).any_bit(self._rng)
        bit.flip(self._disk)
        is_started = await self._start_or_refusal()
        self._count(f"metadata log, {'started' if is_started else 'refused'}")
        if is_started:
            self._has_damaged_log = True
        else:
            bit.flip(self._disk)  # restored from a backup
        return is_started

    async def _damage_snapshot(self) -> bool:
        sound = [one for one in snapshots(self._disk) if one not in self._damaged_snapshots]
        if not sound or self._has_damaged_log:
            return False
        path = sound[-1]
        size = len(self._disk.content(path))
        bit = Bit(path, self._rng.randrange(size), self._rng.randrange(8))
        first_segment = min(segments(self._disk, METADATA_LOG), default="")
        can_serve = len(sound) > 1 or first_segment.endswith(f"/{0:020d}.log")
        bit.flip(self._disk)
        is_started = await self._start_or_refusal()
        self._count(f"snapshot, {'started' if is_started else 'refused'}")
        self._workload.check(
            is_started == can_serve, f"with {bit}: started {is_started}, could {can_serve}"
        )
        if is_started:
            self._damaged_snapshots.add(path)
        else:
            bit.flip(self._disk)
        return is_started

    def _contents(self) -> Mapping[str, bytes]:
        return {path: self._disk.content(path) for path in self._disk.files()}

    async def _start_or_refusal(self) -> bool:
        """Start; a refusal must name the way out, and change nothing."""
        before = self._contents()
        try:
            await self._simulation.start()
        except KafkaError as error:
            self._simulation.kill(power=False)
            check, text = self._workload.check, str(error)
            check("is damaged and was not changed" in text, f"the start is refused with: {text}")
            check(_WAY_OUT in text, f"a refusal does not name the way out: {text}")
            after = self._contents()
            changed = [one for one in {**before, **after} if before.get(one) != after.get(one)]
            check(not changed, f"a refused start changed {changed}")
            return False
        return True

    async def _damage_offsets(self) -> bool:
        group = self._rng.choice(self._workload.groups)
        choices = flushed_batches(self._disk, group.offsets_partition)
        if not choices:
            return False
        bit = self._rng.choice(choices).any_bit(self._rng)
        bit.flip(self._disk)
        self._count("offsets")
        group.is_damaged = True
        await self._serve_the_others()
        group.is_damaged = False
        if self._rng.random() < 0.5:
            bit.flip(self._disk)
        else:
            self._truncate(group)
        return False

    async def _serve_the_others(self) -> None:
        """Start with the damage, check all that is promised, and stop."""
        workload = self._workload
        await workload.start()
        await workload.open_clients()
        await workload.checks.everything()
        await workload.close_clients()
        try:
            await self._simulation.stop()
        except SimulatedCrash:
            workload.crash()
            self._disk.heal()

    def _truncate(self, group: GroupModel) -> None:
        """Do what `ottla log-repair --truncate` does."""
        partition = group.offsets_partition
        found = inspect_log(self._disk, str(partition), may_have_gaps=True)
        self._workload.check(found.damage, f"no damage is found in {partition}")
        log_dir = LogDirectory(DATA_PATH, self._disk)
        lower_checkpoints(log_dir, partition, found.end_offset)
        truncate_log(self._disk, str(partition), found)
        self._count("offsets, truncated")
        self._workload.truncated(partition, found.end_offset)
