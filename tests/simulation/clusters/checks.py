"""What must hold in a whole cluster, checked after each turn of the loop, of what changed.

- Logs, that of the metadata too: `committed_logs`, `cuts`, `in_sync`, `joins`. Requests
  that are accepted: `served`.
- One leader an epoch; a disk gives one vote an epoch, and holds it before it is known; no process
  forgets a vote in its epoch, also not over a start; what the quorum commits is durable on a
  majority of its voters; snapshots name those that are committed.
- A broker leads what its own metadata says, and nothing else; in-sync replicas are replicas, and
  have what their leader has committed.
- Equal offsets of the metadata log mean equal metadata.
- Recovered state equals live state: `recovered_logs`, `coordinators`.
- Nothing outstanding means it can move: `progress`.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING

from ottla.metadata.framing import encode_record
from ottla.raft.leader import Leader
from ottla.raft.requests import ReplicaKey
from ottla.raft.snapshot import snapshot_name
from ottla.server.broker.topic_auto_creation import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.storage.layout import METADATA_LOG
from tests.simulation.clusters.committed_logs import CommittedLog, CommittedMetadata, Replica
from tests.simulation.clusters.compacted_logs import CompactedLog
from tests.simulation.clusters.coordinators import Coordinators
from tests.simulation.clusters.cuts import Cuts
from tests.simulation.clusters.in_sync import InSync
from tests.simulation.clusters.joins import Joins
from tests.simulation.clusters.markers import Markers
from tests.simulation.clusters.progress import Progress
from tests.simulation.clusters.recovered_logs import RecoveredLogs
from tests.simulation.clusters.served import Served
from tests.simulation.clusters.transaction_log import CommittedTransactions
from tests.simulation.durable_state import durable_election, has_unsynced_records, holds_durably

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.raft.member import Role
    from ottla.replication.partition import Partition
    from ottla.server.node.node import Node
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.testing.simulation import SimulatedCluster
    from ottla.testing.simulation.node import SimulatedNode
    from ottla.types import OffsetAndEpoch

IMAGE_SAMPLE = 8
"""The metadata is compared at every so many offsets: to encode all of it takes long."""
_KINDS = {OFFSETS_TOPIC: CompactedLog, TRANSACTION_STATE_TOPIC: CommittedTransactions}
_UNKNOWN_ID = 99
"""The id of no node."""


class NodeView:
    """One process of a node, as it was last seen."""

    def __init__(self, host: SimulatedNode, node: Node) -> None:
        self.host = host
        self.node = node
        self.node_id = node.config.node_id
        self.name = f"{host.host}/{host.life_count}"
        self.driver = node.controller.driver
        self.member = self.driver.node._member
        self.metadata = Replica(self.name, self.driver.log.log)
        self.role: Role | None = None
        self.is_vote_open = False
        """Whether the election state is being stored."""
        self.snapshot_id: OffsetAndEpoch | None = None
        self.partitions: dict[Partition, Replica] = {}
        self.has_moved = True
        """Whether the quorum's machine did anything since it was looked at."""
        self._on_deadline, self.driver._on_deadline = self.driver._on_deadline, self._moves

    def _moves(self, deadline_ms: int) -> None:
        """Take note that the driver has carried out effects: at the end of all it asks for time."""
        self.has_moved = True
        self._on_deadline(deadline_ms)

    def replica(self, partition: Partition) -> Replica:
        """Return the log of a partition: a new one when the log was replaced."""
        known = self.partitions.get(partition)
        if known is None or known.log is not partition.log:
            known = self.partitions[partition] = Replica(self.name, partition.log)
        return known


class ClusterChecks:
    """Raises AssertionError at the first turn after which an invariant does not hold."""

    def __init__(self, cluster: SimulatedCluster, seed: int = 0) -> None:
        self.cluster = cluster
        self.coordinators = Coordinators(seed)
        self.metadata = CommittedMetadata()
        self.logs: dict[tuple[bytes, int], CommittedLog] = {}
        """By topic id and partition."""
        self._newest: dict[tuple[str, int], CommittedLog] = {}
        self.views: list[NodeView] = []
        """Of the processes that run."""
        self._votes: dict[tuple[int, int], int] = {}
        """(node, epoch) → whom its disk voted for."""
        self._images: dict[tuple[int, int], int] = {}
        """Offset and epoch → checksum of the metadata."""
        self._failure: AssertionError | None = None
        """What did not hold when a node published its metadata."""
        self._moved: dict[tuple[NodeView, Partition], None] = {}
        self._changed: dict[NodeView, None] = {}
        self._cuts = Cuts(self._committed_of)
        self._joins = Joins(self.logs)
        self._in_sync = InSync(self.logs, self._joins)
        self.served = Served(self._joins)
        self.markers = Markers(self.logs)
        self.recovered = RecoveredLogs()
        self.progress = Progress()
        for host in cluster:
            host.on_built = self._built
        cluster.loop.on_turn = self._check

    # What happens

    def _built(self, host: SimulatedNode) -> None:
        assert host.node is not None
        view = NodeView(host, host.node)
        self._starts(view)
        self.views.append(view)
        self.served.watch(view.node)
        self._joins.watch(view.node)
        self._cuts.watch(view.name, view.node.broker.replicas.logs)
        view.node.broker.replicas.on_high_watermark(
            lambda moved: self._moved.setdefault((view, moved))
        )
        view.node.controller.add_listener(partial(self._image_changed, view))
        assert host.process is not None
        host.process.on_death(partial(self._died, view))

    def _died(self, view: NodeView) -> None:
        """Look at a process once more: what it did in its last turn may be on its way."""
        self._changed.pop(view, None)
        view.has_moved = True
        self._check()
        self.views = [one for one in self.views if one is not view]

    def _image_changed(self, view: NodeView, delta: MetadataDelta, image: MetadataImage) -> None:
        self._changed[view] = None
        self._in_sync.image_changed(delta, image)
        if image.offset_and_epoch.offset % IMAGE_SAMPLE == 0:
            try:
                self.compare_image(view)
            except AssertionError as error:  # the node would only log it
                self._failure = self._failure or error

    def compare_image(self, view: NodeView) -> None:
        """Check that all nodes have the same metadata at the same offset."""
        image = view.node.broker.image
        content = b"".join(sorted(encode_record(record) for record in image.records()))
        checksum = zlib.crc32(content)
        known = self._images.setdefault(image.offset_and_epoch, checksum)
        assert known == checksum, f"{view.name} has other metadata at {image.offset_and_epoch}"

    def compare_controller(self, view: NodeView) -> None:
        """Check that a controller with nothing uncommitted decides by the metadata."""
        topics = view.node.broker.image.topics.by_name
        decided = {
            topic.name: dict(topic.partitions.items())
            for topic in view.node.controller._runtime.controller.topics
        }
        assert decided == {topic.name: topic.partitions for topic in topics.values()}, (
            f"{view.name} decides by other partitions than those of its metadata"
        )

    # After a turn

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._cuts.check()
        self.served.check()
        self._joins.check()
        for view in self.views:
            if view.has_moved:
                view.has_moved = False
                self._check_member(view)
        if self._moved:
            moved, self._moved = self._moved, {}
            for view, partition in moved:
                self._observe(view, partition)
        self.markers.check()
        if self._changed:
            changed, self._changed = self._changed, {}
            for view in changed:
                self._check_leaders(view)
        self._in_sync.check(view.node for view in self.views)
        self.recovered.check(self.cluster.loop.time(), (view.node for view in self.views))
        self.coordinators.check(self.views)
        running = (view.node for view in self.views if not view.host.is_paused)
        self.progress.check(self.cluster.loop.time(), running)

    # The quorum

    def _check_member(self, view: NodeView) -> None:
        if view.member.role is not view.role:
            self._role_changed(view)
        if view.is_vote_open and not view.driver._is_persisting:
            self._vote_is_known(view)
        if view.metadata.log.high_watermark != view.metadata.high_watermark:
            self._metadata_committed(view, view.member.role)

    def _starts(self, view: NodeView) -> None:
        """Check that a process does not vote again in an epoch in which its disk did."""
        stored = durable_election(view.host.disk)
        role = view.member.role
        has_taken_part = (stored.voted_id, stored.leader_id) != (-1, -1)
        if stored.leader_epoch == role.epoch and has_taken_part and not isinstance(role, Leader):
            other = ReplicaKey(_UNKNOWN_ID)
            assert not role.grants(other, is_up_to_date=True, is_pre_vote=False), (
                f"{view.name} starts and may vote again in epoch {role.epoch}"
            )
        if stored.leader_epoch == role.epoch and stored.voted_id >= 0:
            assert role.voted is not None, f"{view.name} starts without its vote: {stored}"
            assert role.voted.node_id == stored.voted_id, f"{role.voted} starts, and not {stored}"

    def _role_changed(self, view: NodeView) -> None:
        before = view.role
        if isinstance(before, Leader):  # it may have committed, and resigned after that
            self._metadata_committed(view, before)
        role = view.role = view.member.role
        if before is not None and before.epoch == role.epoch and before.voted is not None:
            assert role.voted == before.voted, (
                f"{view.name} votes for {role.voted} in epoch {role.epoch}, before for "
                f"{before.voted}"
            )
        view.is_vote_open = True
        if isinstance(role, Leader):
            self.metadata.led(view.metadata, role.epoch)

    def _vote_is_known(self, view: NodeView) -> None:
        """Check a vote that others may know: it is durable, and the only one of its epoch."""
        view.is_vote_open = False
        role = view.member.role
        if view.driver.failure is not None:
            return
        stored = durable_election(view.host.disk)
        if isinstance(role, Leader) and stored.leader_epoch == role.epoch:
            assert stored.voted_id == view.node_id, f"{view.name} leads and stores {stored}"
        if role.voted is None:
            return
        assert stored.leader_epoch >= role.epoch, (
            f"{view.name} voted in epoch {role.epoch}; durable is {stored}"
        )
        known = self._votes.setdefault((view.node_id, role.epoch), role.voted.node_id)
        assert known == role.voted.node_id, (
            f"{view.name} votes for {role.voted.node_id} in epoch {role.epoch}, before for {known}"
        )

    def _metadata_committed(self, view: NodeView, role: Role) -> None:
        log = view.driver.log
        snapshot_id = log.latest_snapshot
        if snapshot_id is not None and snapshot_id != view.snapshot_id:
            assert log.snapshots[0].offset >= log.start_offset, (
                f"{view.name} keeps snapshots before the start of its metadata log"
            )
            view.snapshot_id = snapshot_id
            data = view.host.disk.content(f"{METADATA_LOG}/{snapshot_name(snapshot_id)}")
            self.metadata.check_snapshot(view.name, snapshot_id, data)
        is_leader = isinstance(role, Leader)
        before = self.metadata.end_offset
        self.metadata.observe(view.metadata, leader_epoch=role.epoch if is_leader else None)
        offset = view.metadata.high_watermark
        if is_leader and offset > before:
            self._is_held_by_majority(view, offset, role.epoch)

    def _is_held_by_majority(self, leader: NodeView, offset: int, epoch: int) -> None:
        voters = leader.member.voters.latest
        holders = sum(self._holds(voter.voter_id, offset, epoch) for voter in voters)
        assert holders >= voters.majority, (
            f"{leader.name} commits up to {offset}, durable on {holders} of {len(voters)} voters"
        )

    def _holds(self, node_id: int, offset: int, epoch: int) -> bool:
        """Whether a node's disk holds the metadata up to an offset whatever happens."""
        host = self.cluster[node_id]
        view = next((one for one in self.views if one.host is host), None)
        if view is not None and not has_unsynced_records(host.disk):
            return view.metadata.log.log_end_offset >= offset
        return holds_durably(host.disk, offset, epoch)

    # Partitions

    def _observe(self, view: NodeView, partition: Partition) -> None:
        log = self.log_of(partition)
        replica = view.replica(partition)
        if not partition.is_leader:
            # in one turn a leader may commit and resign, which is looked at afterwards
            log.observe(replica, leader_epoch=replica.leading_epoch)
            replica.leading_epoch = None
            return
        if partition.leader_epoch != replica.led_epoch:
            log.led(replica, partition.leader_epoch)
        before = replica.high_watermark
        replica.leading_epoch = partition.leader_epoch
        log.observe(replica, leader_epoch=partition.leader_epoch)
        if replica.high_watermark > before:
            self._is_replicated(partition, replica)
            self._in_sync.committed(partition)

    def _is_replicated(self, partition: Partition, replica: Replica) -> None:
        """Check that the replicas in sync have what a leader has committed.

        But for those that have ended since they fetched: they may have lost what they had.
        """
        leading, end_offset = partition.leading, replica.high_watermark
        if leading is None:
            return
        epoch = partition.log.leader_epochs.epoch_for_offset(end_offset - 1)
        for view in self.views:
            follower = leading.followers.get(view.node_id)
            if follower is None or view.node_id not in partition.isr:
                continue
            other = view.node.broker.replicas.find(*partition.topic_partition)
            if other is None or follower.broker_epoch != view.node._lifecycle.broker_epoch:
                continue
            has_it = other.log.log_end_offset >= end_offset
            own_epoch = other.log.leader_epochs.epoch_for_offset(end_offset - 1)
            assert (has_it, own_epoch) == (True, epoch), (
                f"{replica.owner} commits {partition.topic_partition} up to {end_offset}; "
                f"{view.name} is in sync and ends at {other.log.log_end_offset}"
            )

    def _committed_of(self, log: PartitionLog) -> CommittedLog | None:
        return self.logs.get((log.topic_id or b"", log.topic_partition.partition))

    def log_of(self, partition: Partition) -> CommittedLog:
        """Return what is committed of a partition."""
        key = partition.topic_id, partition.topic_partition.partition
        known = self.logs.get(key)
        if known is None:
            name = partition.topic_partition
            known = _KINDS.get(name.topic, CommittedLog)(str(name))
            self.logs[key] = self._newest[partition.topic_partition] = known
        return known

    def named_log(self, topic: str, index: int) -> CommittedLog:
        """Return what is committed of a partition of the newest topic with this name."""
        known = self._newest.get((topic, index))
        if known is None:
            known = self._newest[topic, index] = CommittedLog(f"{topic}-{index}")
        return known

    def _check_leaders(self, view: NodeView) -> None:
        """Check that a broker leads by its own metadata."""
        topics = view.node.broker.image.topics
        for partition in view.node.broker.replicas:
            if not partition.is_leader:
                continue
            self._observe(view, partition)
            name, index = partition.topic_partition
            found = topics.partition(name, index)
            assert found is not None, f"{view.name} leads {name}-{index}, which is deleted"
            assert (found.leader, found.leader_epoch) == (view.node_id, partition.leader_epoch), (
                f"{view.name} leads {name}-{index} in epoch {partition.leader_epoch}; its metadata "
                f"names {found.leader} in epoch {found.leader_epoch}"
            )
            assert set(found.isr) <= set(found.replicas), f"in sync, but no replica: {found}"
