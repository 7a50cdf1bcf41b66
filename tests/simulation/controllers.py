"""Whole controllers over a simulated quorum: operations, standbys, failovers, snapshots.

Each member runs the real ControllerRuntime on the members of `quorum`; operations change quotas,
which need no broker.
"""

from __future__ import annotations

import zlib
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.config.broker import parse_broker_config
from ottla.controller.controller import Controller
from ottla.controller.replayed_log import ReplayedLog
from ottla.controller.runtime import ControllerRuntime
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.metadata.loader import MetadataLoader, SnapshotPolicy
from ottla.protocol.apis.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.records.metadata import FeatureLevelRecord
from ottla.purgatory.loop import Loop
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.purgatory.work import Worker
from tests.controller.harness import PROPERTIES
from tests.simulation.quorum import SimulatedMember, SimulatedQuorum

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.purgatory.pending import Pending
    from ottla.raft.driver import RaftDriver
    from ottla.raft.node import RaftNode
    from ottla.raft.quorum_state import QuorumStateStore
    from ottla.raft.replicated_log import ReplicatedLog
    from ottla.raft.requests import LeaderAndEpoch
    from ottla.types import OffsetAndEpoch

USERS = 8
SNAPSHOT_BYTES = 3000
TURN_MS = 2
"""How long a turn takes in which committed records are applied: messages arrive between them."""
Entry = AlterClientQuotasRequest.EntryData


class SimulatedController(SimulatedMember):
    """A member with the controller on top; it hands on what the driver announces."""

    runtime: ControllerRuntime
    loader: MetadataLoader
    epoch_start_offset = -1

    def make_driver(
        self, node: RaftNode, log: ReplicatedLog, store: QuorumStateStore
    ) -> RaftDriver:
        """Make a new controller, which loads the newest snapshot; its runtime makes the driver."""
        quorum = self.quorum
        config = parse_broker_config({**PROPERTIES, "metadata.max.retention.bytes": "1"})
        controller = Controller(
            config=config,
            cluster_id="c",
            rng=Random(f"{quorum.seed}-{self.node_id}-{self.life}-controller"),
            supported_features=SUPPORTED_FEATURES,
            kraft_version=lambda: node.kraft_version,
            raise_kraft_version=lambda level, validate_only: (
                self.runtime.driver.raise_kraft_version(level, validate_only=validate_only)
            ),
        )
        self.loader = MetadataLoader()
        policy = SnapshotPolicy(max_bytes=SNAPSHOT_BYTES, max_interval_ms=0, now_ms=quorum.clock.ms)
        replayed = ReplayedLog(controller, self.loader, policy)
        self.runtime = ControllerRuntime(
            replayed,
            node,
            metadata_log=log,
            store=store,
            loop=Loop(self.clock, TimingWheel(0), Worker(self._call_soon)),
            config=config,
            run_in_worker=self.run_in_worker,
            send=self.send,
            on_deadline=self.on_deadline,
            bootstrap=[
                MessageAndVersion(FeatureLevelRecord(name="metadata.version", feature_level=30), 0)
            ],
            on_failure=self.failed,
        )
        self.runtime.driver._listener = self
        self.runtime._catch_up.records_per_turn = 1 + quorum.seed % 3
        found = log.checked_snapshot
        if found is not None and found[0].offset > 0:
            self.runtime.snapshot_loaded(found[0])
        return self.runtime.driver

    def _call_soon(self, turn: Callable[[], None]) -> None:
        self.quorum.happen(TURN_MS, self.guarded, self.life, self._take_turn, turn)

    def _take_turn(self, turn: Callable[[], None]) -> None:
        """Let the controller apply more; it may become active then."""
        turn()
        self._compare()

    # What the driver announces

    def became_leader(self, epoch: int, epoch_start_offset: int, /) -> None:
        """Check it, then let the controller become active."""
        super().became_leader(epoch, epoch_start_offset)
        self.epoch_start_offset = epoch_start_offset
        self.runtime.became_leader(epoch, epoch_start_offset)

    def batch_appended(self, last_offset: int, size_bytes: int, /) -> None:
        """Hand it on."""
        super().batch_appended(last_offset, size_bytes)
        self.runtime.batch_appended(last_offset, size_bytes)

    def high_watermark_moved(self, offset: int, /) -> None:
        """Let the controller apply it, then compare the image with those of others."""
        super().high_watermark_moved(offset)
        self.runtime.high_watermark_moved(offset)
        self._compare()

    def epoch_changed(self, leader: LeaderAndEpoch, /) -> None:
        """Hand it on."""
        super().epoch_changed(leader)
        self.runtime.epoch_changed(leader)

    def snapshot_loaded(self, snapshot_id: OffsetAndEpoch, /) -> None:
        """Let the controller continue from it."""
        super().snapshot_loaded(snapshot_id)
        self.runtime.snapshot_loaded(snapshot_id)
        self._compare()

    def resigned(self, epoch: int, /) -> None:
        """Let the controller revert to what is committed: its state is the image's then."""
        super().resigned(epoch)
        self.runtime.resigned(epoch)
        if not self.runtime._catch_up.is_done:
            return
        limits = dict(self.runtime.controller.quotas._limits)
        assert limits == _limits(self.loader), f"{self.node_id} reverted to {limits}"

    def _compare(self) -> None:
        quorum = self.quorum
        assert isinstance(quorum, SimulatedControllers)
        image = self.loader.image
        content = b"".join(sorted(encode_record(record) for record in image.records()))
        quorum.images_agree(image.offset_and_epoch, zlib.crc32(content))

    # Operations

    def offer(self) -> None:
        """Change a quota, if this controller is active."""
        quorum = self.quorum
        assert isinstance(quorum, SimulatedControllers)
        if self.driver is None or not self.runtime.active:
            return
        assert self.loader.image.offset_and_epoch.offset >= self.epoch_start_offset
        user = f"u{quorum.rng.randrange(USERS)}"
        quorum.operations += 1
        number = quorum.operations
        request = AlterClientQuotasRequest(
            entries=[
                Entry(
                    entity=[Entry.EntityData(entity_type="user", entity_name=user)],
                    ops=[
                        Entry.OpData(
                            key="producer_byte_rate",
                            value=float(number),
                            remove=quorum.rng.random() < 0.1,
                        )
                    ],
                )
            ],
            validate_only=False,
        )
        quotas = self.runtime.controller.quotas
        pending: Pending[Any] = self.runtime.write(lambda: quotas.alter(request))
        pending.on_done(lambda done: quorum.answered(succeeded=done.error is None))

    def write_snapshot(self) -> None:
        """Snapshots are written by the controller, when they are due."""


def _limits(loader: MetadataLoader) -> dict[tuple[Any, str], float]:
    return {
        (entity, key): limit
        for entity, limits in loader.image.quotas.by_entity.items()
        for key, limit in limits.items()
    }


class SimulatedControllers(SimulatedQuorum):
    """A quorum whose members are whole controllers."""

    member_class = SimulatedController

    def __init__(
        self, seed: int, *, voters: int = 3, observers: int = 1, joins_by_itself: bool = False
    ) -> None:
        self.operations = 0
        self.successes = 0
        self._images: dict[OffsetAndEpoch, int] = {}
        super().__init__(seed, voters=voters, observers=observers, joins_by_itself=joins_by_itself)

    def answered(self, *, succeeded: bool) -> None:
        """Count an operation's answer."""
        self.successes += succeeded

    def check_state(self, snapshot_id: OffsetAndEpoch, values: list[bytes]) -> None:
        """Leave it to the comparison of the images, which follows."""

    def images_agree(self, end: OffsetAndEpoch, checksum: int) -> None:
        """Check that all nodes have the same metadata at the same offset and epoch."""
        known = self._images.setdefault(end, checksum)
        assert known == checksum, f"two images at {end}"
