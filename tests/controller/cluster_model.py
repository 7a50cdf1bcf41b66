"""Random operations of five brokers on one controller, with what must hold after each of them.

`python -m tests.controller.cluster_model SEED STEPS` prints the digest of the metadata that result.
"""

from __future__ import annotations

import hashlib
import random
import sys
from typing import TYPE_CHECKING

from ottla.controller.controller import Controller
from ottla.controller.topics import IndexedPartition
from ottla.errors import ErrorCode
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.framing import encode_record
from ottla.metadata.partition import NO_LEADER
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.update_features import UpdateFeaturesRequest
from ottla.types import ZERO_UUID
from tests.controller.brokers import Brokers, directory_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.controller.topics import _PartitionIndex
    from ottla.metadata.image import MetadataImage
    from ottla.metadata.partition import PartitionRegistration

IDS = range(1, 6)
NAMES = ("a", "b", "c")
MINUTE_MS = 60_000


class ClusterModel:
    """Draws operations; each is checked against the state as it was before it."""

    def __init__(self, seed: int, *, elr: bool = True) -> None:
        self.rng = random.Random(seed)
        self.brokers = Brokers(5)
        self.elr = elr
        if not elr:
            update = UpdateFeaturesRequest.FeatureUpdateKey(
                feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2
            )
            answer = self.brokers.ask(UpdateFeaturesRequest(feature_updates=[update]))
            assert answer.error_code == 0
        self._last: dict[IndexedPartition, PartitionRegistration] = {}
        self._operations: list[Callable[[], None]] = [
            *(self._alter,) * 8,
            *(self._fence, self._unfence, self._reassign, self._elect) * 3,
            *(self._silence, self._restart, self._cancel, self._create) * 2,
            *(self._stop, self._lose_directory, self._place, self._unregister),
            *(self._delete, self._balance, self._configure),
        ]

    @property
    def controller(self) -> Controller:
        return self.brokers.node._runtime.controller

    def step(self) -> None:
        """Do one operation and check what must hold."""
        self.rng.choice(self._operations)()
        self._check()

    def digest(self) -> str:
        """Return a digest of all metadata, in order."""
        return hashlib.sha256(b"".join(self.encoded())).hexdigest()

    def encoded(self) -> list[bytes]:
        """Return the records of all metadata."""
        return [encode_record(one) for one in self.brokers.image.records()]

    # Operations

    def _registered(self, *, fenced: bool | None = None) -> list[int]:
        brokers = self.brokers.image.cluster.brokers
        return [one for one in IDS if one in brokers and fenced in {None, brokers[one].fenced}]

    def _pick(self, *, fenced: bool | None = None) -> int | None:
        found = self._registered(fenced=fenced)
        return self.rng.choice(found) if found else None

    def _topic(self) -> str | None:
        names = sorted(self.brokers.image.topics.by_name)
        return self.rng.choice(names) if names else None

    def _place_of(self) -> tuple[str, int] | None:
        name = self._topic()
        if name is None:
            return None
        return name, self.rng.choice(sorted(self.brokers.image.topics.by_name[name].partitions))

    def _create(self) -> None:
        free = [name for name in NAMES if name not in self.brokers.image.topics.by_name]
        if not free or not self._registered(fenced=False):
            return
        result = self.brokers.create(
            free[0],
            self.rng.randint(1, 3),
            self.rng.randint(1, 3),
            min_insync_replicas=str(self.rng.randint(1, 3)),
            unclean_leader_election_enable=self.rng.choice(("false", "false", "true")),
        )
        assert result.error_code in {0, ErrorCode.INVALID_REPLICATION_FACTOR}, result

    def _delete(self) -> None:
        name = self._topic()
        if name is not None:
            state = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID)
            self.brokers.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1))

    def _configure(self) -> None:
        name = self._topic()
        if name is not None:
            value = str(self.rng.randint(1, 3))
            self.brokers.configure_topic(name, min_insync_replicas=value)

    def _alter(self) -> None:
        place = self._place_of()
        if place is None:
            return
        partition = self.brokers.partition(*place)
        if not partition.has_leader:
            return
        others = [one for one in partition.replicas if one != partition.leader]
        isr = [partition.leader, *(one for one in others if self.rng.random() < 0.7)]
        answer = self.brokers.alter(
            partition.leader, place[0], *isr, number=place[1], leader_recovery_state=0
        )
        assert answer.error_code in {
            0,
            ErrorCode.INELIGIBLE_REPLICA,
            ErrorCode.NEW_LEADER_ELECTED,
        }, answer

    def _fence(self) -> None:
        broker_id = self._pick(fenced=False)
        if broker_id is not None:
            self.brokers.beat(broker_id, fence=True)

    def _unfence(self) -> None:
        broker_id = self._pick(fenced=True)
        if broker_id is None:
            return
        broker = self.brokers.image.cluster.brokers[broker_id]
        self.brokers.beat(broker_id, stop=broker.in_controlled_shutdown)

    def _silence(self) -> None:
        broker_id = self._pick(fenced=False)
        if broker_id is not None:
            self.brokers.let_sessions_expire(broker_id)
            self._tick()

    def _tick(self) -> None:
        self.brokers.node.tick(self.brokers.clock.ms)
        self.brokers.run_turn()

    def _restart(self) -> None:
        broker_id = self.rng.choice(IDS)
        directories = [directory_of(broker_id), directory_of(broker_id, 1)]
        fields = {"previous_broker_epoch": -1} if self.rng.random() < 0.5 else {}
        self.brokers.enrol(broker_id, log_dirs=directories[: self.rng.randint(1, 2)], **fields)

    def _stop(self) -> None:
        broker_id = self._pick(fenced=False)
        if broker_id is None:
            return
        answer = self.brokers.beat(broker_id, stop=True)
        for other in self._registered(fenced=False):
            if other != broker_id:
                self.brokers.beat(other)
        if not answer.should_shut_down:
            self.brokers.beat(broker_id, stop=True)

    def _lose_directory(self) -> None:
        broker_id = self._pick(fenced=False)
        if broker_id is not None:
            lost = directory_of(broker_id, self.rng.randint(0, 1))
            known = self.brokers.image.cluster.brokers[broker_id].log_directories
            if len(known) > 1:  # a broker without any directory stops
                self.brokers.beat(broker_id, offline=[lost])

    def _place(self) -> None:
        place, broker_id = self._place_of(), self._pick()
        if place is not None and broker_id is not None:
            directory = directory_of(broker_id, self.rng.randint(0, 2))
            code = self.brokers.place(broker_id, place[0], directory, place[1])
            assert code in {0, ErrorCode.NOT_LEADER_OR_FOLLOWER}

    def _unregister(self) -> None:
        broker_id = self._pick()
        if broker_id is not None and len(self._registered()) > 2:
            self.brokers.unregister(broker_id)

    def _reassign(self) -> None:
        place = self._place_of()
        if place is not None:
            known = self._registered()
            target = self.rng.sample(known, self.rng.randint(1, min(4, len(known))))
            code, text = self.brokers.reassign(place[0], target, place[1])
            assert code == 0, text

    def _cancel(self) -> None:
        place = self._place_of()
        if place is not None:
            self.brokers.reassign(place[0], None, place[1])

    def _elect(self) -> None:
        place = self._place_of()
        if place is not None:
            self.brokers.elect(self.rng.randint(0, 1), *place)

    def _balance(self) -> None:
        """Let five minutes pass, after which the clock elects leaders."""
        for _ in range(40):
            self.brokers.let_sessions_expire()
            self._tick()

    # What must hold

    def _check(self) -> None:
        partitions = partitions_of(self.brokers.image)
        for key, partition in partitions.items():
            self._check_members(partition)
            self._check_brokers(partition)
            _check_epochs(self._last.get(key), partition)
        self._last = partitions
        check_index(self.controller, partitions)

    def _check_members(self, partition: PartitionRegistration) -> None:
        isr, elr = partition.isr, partition.eligible_leader_replicas
        for replicas in (partition.replicas, isr, elr):
            assert len(set(replicas)) == len(replicas), partition
        assert set(isr) <= set(partition.replicas), partition
        assert set(elr) <= set(partition.replicas), partition
        assert not set(isr) & set(elr), partition
        assert partition.leader in {NO_LEADER, *isr}, partition
        assert len(partition.directories) == len(partition.replicas), partition
        assert isr or (self.elr and not partition.has_leader), partition
        if partition.leader_recovery_state:
            assert len(isr) <= 1, partition

    def _check_brokers(self, partition: PartitionRegistration) -> None:
        """Check that the ISR of a led partition is active; others have one member at most."""
        brokers = self.brokers.image.cluster.brokers
        active = {one for one, broker in brokers.items() if broker.is_active}
        if partition.has_leader:
            assert set(partition.isr) <= active, partition
            directory = partition.directory_of(partition.leader)
            assert brokers[partition.leader].has_online_directory(directory), partition
        else:
            assert len(partition.isr) <= 1, partition


def partitions_of(image: MetadataImage) -> dict[IndexedPartition, PartitionRegistration]:
    """Return all partitions of an image."""
    return {
        IndexedPartition(topic.topic_id, number): partition
        for topic in image.topics.by_id.values()
        for number, partition in topic.partitions.items()
    }


def _check_epochs(old: PartitionRegistration | None, new: PartitionRegistration) -> None:
    if old is None or old == new:
        return
    assert new.partition_epoch >= old.partition_epoch
    if new.leader != old.leader:
        assert new.leader_epoch > old.leader_epoch, (old, new)
    if set(old.replicas) - set(new.replicas):
        assert new.leader_epoch > old.leader_epoch, (old, new)


def check_index(
    controller: Controller, partitions: dict[IndexedPartition, PartitionRegistration]
) -> None:
    """Check that the index finds what a scan finds, and that controller and image agree."""
    state = {
        IndexedPartition(topic.topic_id, number): partition
        for topic in controller.topics
        for number, partition in topic.partitions.items()
    }
    assert state == partitions
    index = controller.topics.index

    def where(matches: Callable[[PartitionRegistration], object]) -> set[IndexedPartition]:
        return {key for key, partition in state.items() if matches(partition)}

    for broker_id in IDS:
        _check_broker(index, state, broker_id)
    assert set(index.leaderless()) == where(lambda one: not one.has_leader)
    assert set(index.imbalanced) == where(lambda one: one.leader != one.preferred_replica)
    assert set(index.reassigning) == where(lambda one: one.is_reassigning)


def _check_broker(
    index: _PartitionIndex, state: dict[IndexedPartition, PartitionRegistration], broker_id: int
) -> None:
    in_sync = {key for key, one in state.items() if broker_id in one.isr}
    eligible = {key for key, one in state.items() if broker_id in one.eligible_leader_replicas}
    assert set(index.in_sync(broker_id)) == in_sync
    assert set(index.eligible(broker_id)) == eligible
    assert index.leads(broker_id) == any(one.leader == broker_id for one in state.values())
    for number in range(3):
        directory = directory_of(broker_id, number)
        found = {key for key, one in state.items() if directory in one.directories}
        assert set(index.in_directory(directory)) == found


def check_replay(model: ClusterModel) -> None:
    """Check that a controller that loads the image's records has the same state and index."""
    controller = Controller(
        config=model.brokers.config,
        cluster_id=model.brokers.cluster_id,
        rng=random.Random(0),
        supported_features=SUPPORTED_FEATURES,
        kraft_version=lambda: 1,
        raise_kraft_version=lambda _level, validate_only: None,
    )
    for record in model.brokers.image.records():
        controller.replay(record, 0)
    check_index(controller, model._last)
    assert dict(controller.cluster.brokers) == dict(model.controller.cluster.brokers)


if __name__ == "__main__":
    run = ClusterModel(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        run.step()
    sys.stdout.write(run.digest())
