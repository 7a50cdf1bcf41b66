"""The commands of the in-sync set's transcripts: real replicas, each message sent by hand.

new                     brokers 1, 2 and 3 hold the partition, 1 leads; min.insync.replicas is 2
produce VALUE…          the leader appends one record for each, with acks=all
fetch NODE [lost]       a follower fetches once from its leader, or its request is lost
lag MS NODE             time passes; the leader looks for followers that lag
decide [lost]           the oldest request reaches the controller; its answer may be lost
metadata NODE…          brokers see the newest metadata
move NODE               the controller elects another leader
fence NODE              the controller fences a broker that is silent
restart NODE [power]    a broker ends and begins again; with a power cut it loses its log
show                    all replicas
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.fetch_values import FetchValues
from ottla.purgatory.pending import Pending
from ottla.purgatory.work import finish
from ottla.storage.batches import whole_batches
from tests.simulation.quorum_faults import SimulatedClock
from tests.simulation.replica_broker import SimulatedBroker
from tests.simulation.replica_checks import ReplicaChecks
from tests.simulation.replica_controller import ModelController

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.apis.alter_partition import AlterPartitionRequest
    from ottla.protocol.fetch_values import FetchAnswer
    from tests.simulation.replica_controller import Image


class Broker(SimulatedBroker):
    """A broker whose requests to the controller wait for `decide`."""

    cluster: Transcript  # type: ignore[assignment] # in its place

    def send_to_controller(self, request: AlterPartitionRequest) -> Pending[Any]:
        """Put a request into the queue."""
        answer: Pending[Any] = Pending()
        proposed = request.topics[0].partitions[0]
        members = " ".join(
            f"{one.broker_id}@{one.broker_epoch}" for one in proposed.new_isr_with_epochs
        )
        self.cluster.say(
            f"{self.node_id} proposes ISR {members} in leader epoch {proposed.leader_epoch}, "
            f"partition epoch {proposed.partition_epoch}"
        )
        self.cluster.requests.append((self, request, answer))
        return answer


class Wait:
    """A producer that waits for its acknowledgement."""

    is_over = False

    def __init__(self, world: Transcript, node_id: int, value: str) -> None:
        self._world = world
        self._node_id = node_id
        self._value = value

    def acknowledged(self, _position: int, code: ErrorCode) -> None:
        """Say what the producer is answered."""
        self._world.say(f"{self._node_id} answers {self._value}: {code.name}")


class Transcript:
    """Stands for the simulation: nothing happens but by a command."""

    def __init__(self) -> None:
        self.seed = 0
        self.rng = Random(0)
        self.clock = SimulatedClock()
        self.checks = ReplicaChecks()
        self.produced: Counter[str] = Counter()
        self.lines: list[str] = []
        self.requests: deque[tuple[Broker, AlterPartitionRequest, Pending[Any]]] = deque()
        self.flushes: list[Callable[[], None]] = []
        self.fetches: dict[int, tuple[SimulatedBroker, Any, Pending[Any]]] = {}
        self.brokers: dict[int, SimulatedBroker] = {}
        self.controller = ModelController(self, (1, 2, 3))  # type: ignore[arg-type] # in its place

    def say(self, text: str) -> None:
        """Add a line."""
        self.lines.append(text)

    # What brokers and controller ask of a simulation

    def happen(self, _delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        """Let nothing happen by the clock; truncations are flushed before the next fetch."""
        if "_flush_cut" in [getattr(one, "__name__", "") for one in arguments]:
            self.flushes.append(lambda: action(*arguments))

    def decided(self, image: Image) -> None:
        """Say what the controller decided."""
        partition = image.partition
        isr = " ".join(map(str, partition.isr))
        elr = " ".join(map(str, partition.eligible_leader_replicas))
        self.say(
            f"controller: leader {partition.leader}, leader epoch {partition.leader_epoch}, "
            f"partition epoch {partition.partition_epoch}, ISR {isr}{f', ELR {elr}' if elr else ''}"
        )

    def exchange(
        self, source: SimulatedBroker, target: SimulatedBroker, request: Any
    ) -> Pending[Any]:
        """Keep a fetch for its command."""
        pending: Pending[Any] = Pending()
        self.fetches[source.node_id] = target, request, pending
        return pending

    # Commands

    def run(self, line: str) -> list[str]:
        """Execute a command; return what happened."""
        command, *arguments = line.split()
        self.lines = []
        getattr(self, f"do_{command}")(*arguments)
        return self.lines

    def do_new(self) -> None:
        """Start all brokers; 1 leads and all are in sync."""
        for node_id in (1, 2, 3):
            broker = self.brokers[node_id] = Broker(self, node_id)  # type: ignore[arg-type]
            broker.broker_epoch = self.controller.register(node_id, is_clean=True)
        for node_id, one in self.brokers.items():
            self.controller.heartbeat(node_id, one.broker_epoch)
        partition = self.controller.partition._replace(
            leader=1,
            leader_epoch=1,
            partition_epoch=1,
            isr=(1, 2, 3),
            eligible_leader_replicas=(),
        )
        self.controller.image = self.controller.image._replace(partition=partition)
        self.lines = []
        for one in self.brokers.values():
            one.begin()
            one.see(self.controller.image)
        self.do_show()

    def do_produce(self, *values: str) -> None:
        """Append, and wait for acknowledgements."""
        broker = self._leader()
        assert broker.partition is not None
        for value in values:
            wait = Wait(self, broker.node_id, value)
            code = broker.append([value.encode()], wait)
            if code is not ErrorCode.NONE:
                self.say(f"{broker.node_id} refuses {value}: {code.name}")
        self.say(f"{broker.node_id} {broker.partition.log!r}")

    def _leader(self) -> SimulatedBroker:
        found = [
            one
            for one in self.brokers.values()
            if one.partition is not None and one.partition.is_leader
        ]
        return max(found, key=lambda one: one.partition.leader_epoch if one.partition else -1)

    def do_fetch(self, node: str, fate: str = "") -> None:
        """Carry one fetch and its response."""
        broker = self.brokers[int(node)]
        if broker.node_id not in self.fetches and broker.fetcher is not None:
            self.clock.ms += 50
            broker.poll(broker.fetcher)
            while self.flushes:
                self.flushes.pop()()
        target, request, pending = self.fetches.pop(broker.node_id)
        assert isinstance(request, FetchValues)
        ((leader_epoch, offset, last_epoch, *_),) = request.partitions.values()
        text = (
            f"{node}->{target.node_id} fetch from {offset}, last epoch {last_epoch}, in leader "
            f"epoch {leader_epoch} by broker epoch {request.replica_epoch}"
        )
        self.say(text + (": lost" if fate else ""))
        if fate:
            return
        response = target.answer(request)
        self._say_response(target.node_id, node, response)
        pending.complete(response)
        assert broker.partition is not None
        self.say(f"{node} {broker.partition.log!r}")

    def _say_response(self, source: int, target: str, response: FetchAnswer) -> None:
        (fetched,) = response.partitions
        text = f"{source}->{target} high watermark {fetched.high_watermark}"
        if fetched.error_code:
            text = f"{source}->{target} {ErrorCode(fetched.error_code).name}"
        elif fetched.diverging is not None:
            epoch, end_offset = fetched.diverging
            text = f"{source}->{target} epoch {epoch} ends at {end_offset}"
        elif fetched.size_bytes:
            batches = whole_batches(fetched.records)  # type: ignore[arg-type] # no file here
            text += f", records {batches[0].base_offset} to {batches[-1].last_offset}"
        self.say(text)

    def do_lag(self, duration_ms: str, node: str) -> None:
        """Let time pass for one leader."""
        self.clock.ms += int(duration_ms)
        finish(self.brokers[int(node)].replicas.check_lag(self.clock.ms))

    def do_decide(self, fate: str = "") -> None:
        """Carry a request to the controller, and its answer."""
        broker, request, answer = self.requests.popleft()
        response = self.controller.alter_partition(request)
        code = ErrorCode(response.error_code)
        if response.topics:
            code = ErrorCode(response.topics[0].partitions[0].error_code)
        self.say(f"controller->{broker.node_id} {code.name}{': lost' if fate else ''}")
        if not fate:
            answer.complete(response)

    def do_metadata(self, *nodes: str) -> None:
        """Let brokers see what is decided."""
        for node in nodes:
            self.fetches.pop(int(node), None)
            self.brokers[int(node)].see(self.controller.image)
        self.do_show()

    def do_move(self, node: str) -> None:
        """Elect another leader."""
        self.controller.lead_by(int(node))

    def do_fence(self, node: str) -> None:
        """Fence a broker."""
        self.controller.fence(int(node))

    def do_restart(self, node: str, fate: str = "") -> None:
        """End a process and begin the next."""
        broker = self.brokers[int(node)]
        self.fetches.pop(broker.node_id, None)
        broker.stop(power_cut=bool(fate))
        broker.start()
        self.controller.heartbeat(broker.node_id, broker.broker_epoch)
        self.say(f"{node} begins as broker epoch {broker.broker_epoch}")

    def do_show(self) -> None:
        """Show all replicas."""
        for node_id, broker in self.brokers.items():
            partition = broker.partition
            assert partition is not None
            role = f"follows {partition.leader_id}"
            if partition.leading is not None:
                isr = " ".join(map(str, partition.leading.maximal_isr))
                role = f"leads, maximal ISR {isr}"
            self.say(f"{node_id} epoch {partition.leader_epoch} {role}, {partition.log!r}")
