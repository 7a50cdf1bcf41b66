"""Requests on their way to the active controller: what is refused, retried and given up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.network.node_channel import NodeChannel
from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.codec import decode_at, encode_into
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.security.principal import ANONYMOUS
from ottla.server.controller.active_controller import ActiveController, enveloped
from ottla.server.controller.channel import Requester
from ottla.server.controller.quorum_view import answer_of
from ottla.server.system.timers import LoopTimer
from ottla.testing.simulation import SimulatedCluster
from ottla.testing.simulation.environment import SimulatedClock
from ottla.testing.simulation.node import CONTROLLER_PORT
from ottla.types import ZERO_UUID
from tests.coordinator.harness import VirtualClock

if TYPE_CHECKING:
    from ottla.protocol.apis.envelope import EnvelopeRequest, EnvelopeResponse
    from ottla.protocol.schema import Request
    from ottla.purgatory.pending import Pending

CLIENT = Requester(ANONYMOUS, "a-client", True, 7, "192.0.2.7")
TOPIC = CreateTopicsRequest.CreatableTopic(
    name="one", num_partitions=1, replication_factor=1, assignments=[], configs=[]
)
CREATION = CreateTopicsRequest(topics=[TOPIC], timeout_ms=1000)


async def _done(pending: Pending[Any]) -> Any:
    event = asyncio.Event()
    pending.on_done(lambda _: event.set())
    await event.wait()
    return pending.value


class _Asker:
    """A broker as far as it sends to a controller's listener."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        clock = SimulatedClock(cluster.loop)
        self.timer = LoopTimer(cluster.loop, clock)
        self.channel = NodeChannel("test", "9", loop=cluster.loop, clock=clock, timer=self.timer)

    async def ask(self, node_id: int, request: Request) -> Any:
        address = (f"node{node_id}", CONTROLLER_PORT)
        return await _done(self.channel.send(node_id, address, request, timeout_ms=5000))

    def close(self) -> None:
        self.channel.close()
        self.timer.close()


def _changed(**fields: Any) -> EnvelopeRequest:
    made = enveloped(CREATION, CLIENT)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (_changed(request_principal=b"\0\1junk"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (_changed(request_principal=None), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (_changed(client_host_address=b"\x7f\0\0"), ErrorCode.INVALID_REQUEST),
        (enveloped(MetadataRequest(topics=[]), CLIENT), ErrorCode.INVALID_REQUEST),
        (_changed(request_data=b"\0\x13\x03\xe7\0\0\0\0\0\0\0"), ErrorCode.UNSUPPORTED_VERSION),
    ],
    ids=["principal's version", "no principal", "address", "not forwarded", "version"],
)
def test_an_envelope_that_cannot_be_opened_is_refused(
    request_: EnvelopeRequest, code: ErrorCode
) -> None:
    """With Kafka's code; nothing is done."""
    cluster = SimulatedCluster(1, nodes=1)

    async def work() -> None:
        await cluster.start()
        asker = _Asker(cluster)
        answer: EnvelopeResponse = await asker.ask(1, request_)
        assert (answer.error_code, answer.response_data) == (code, None)
        asker.close()
        await cluster.stop()

    cluster.run(work())


def test_a_standby_controller_opens_no_envelope() -> None:
    """The broker asks another controller then; the active one answers inside the envelope."""
    cluster = SimulatedCluster(2)

    async def work() -> None:
        await cluster.start()
        asker = _Asker(cluster)
        for number, node in enumerate(cluster, 1):
            answer = await asker.ask(number, enveloped(CREATION, CLIENT))
            is_active = node is cluster.active_controller
            expected = ErrorCode.NONE if is_active else ErrorCode.NOT_CONTROLLER
            assert answer.error_code == expected
            assert (answer.response_data is not None) == is_active
        asker.close()
        await cluster.stop()

    cluster.run(work())


def test_unknown_tagged_fields_change_nothing() -> None:
    """A newer broker may send them; the message then has a class of its own."""
    cluster = SimulatedCluster(4, nodes=1)

    async def work() -> None:
        await cluster.start()
        asker = _Asker(cluster)
        heartbeat = BrokerHeartbeatRequest(
            broker_id=7,
            broker_epoch=1,
            current_metadata_offset=0,
            want_fence=False,
            want_shut_down=False,
        )
        encoded = b"".join(_encoded(heartbeat))[:-1] + b"\1\x63\1x"
        newer, _ = decode_at(BrokerHeartbeatRequest, 1, memoryview(encoded), 0)
        assert type(newer) is not BrokerHeartbeatRequest
        answer = await asker.ask(1, newer)
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
        asker.close()
        await cluster.stop()

    cluster.run(work())


def _encoded(message: Any) -> list[Any]:
    out: list[Any] = []
    encode_into(message, 1, out)
    return out


@pytest.mark.soak
def test_without_a_majority_a_request_is_given_up_in_time() -> None:
    """The client is answered REQUEST_TIMED_OUT; the node serves on."""
    cluster = SimulatedCluster(3)

    async def work() -> None:
        await cluster.start()
        for number in (2, 3):
            cluster[number].kill(power=False)
        node = cluster[1].node
        assert node is not None
        await asyncio.sleep(10)  # its leader resigns, or its follower has none
        begun_ms = node.clock.monotonic_ms()
        with pytest.raises(KafkaError) as caught:
            await _done(node.broker.controller.send(CREATION, CLIENT))
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert 59_000 < node.clock.monotonic_ms() - begun_ms <= 60_000
        cluster[1].kill(power=False)

    cluster.run(work())


def test_a_request_that_cannot_be_decided_holds_up_no_other() -> None:
    """After a failure of the disk; all requests that wait for a controller get an error."""
    driver: Any = SimpleNamespace(failure=OSError("the disk fails"))
    unknown = SimpleNamespace(leader_id=-1, endpoints=())
    controller: Any = SimpleNamespace(
        active=False,
        failure=None,
        driver=SimpleNamespace(node=SimpleNamespace(role=SimpleNamespace(leader=unknown))),
        apis=SimpleNamespace(
            send=lambda request, _requester: answer_of(driver, request, "c", 0, "")
        ),
    )
    timer, clock = TimingWheel(0), VirtualClock()
    config: Any = SimpleNamespace(
        node_id=1, controller_listener_names=(), controller_socket_timeout_ms=1000
    )
    loop: Any = None
    channel = ActiveController("test", controller, config, loop=loop, clock=clock, timer=timer)
    request = AddRaftVoterRequest(
        cluster_id="c", timeout_ms=0, voter_id=2, voter_directory_id=ZERO_UUID, listeners=[]
    )
    pending = [channel.send(request) for _ in range(2)]
    assert not any(one.done for one in pending)
    controller.failure = driver.failure
    clock.time_ms = 1000
    timer.advance(1000)
    codes = [one.error.code for one in pending if isinstance(one.error, KafkaError)]
    assert codes == [ErrorCode.BROKER_NOT_AVAILABLE] * 2
