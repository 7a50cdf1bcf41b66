"""The controller channel of a whole node, with messages as bytes: as a remote one has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey, response_class
from ottla.server.controller.apis import ControllerApis
from ottla.testing.simulation.node import SimulatedNode

if TYPE_CHECKING:
    import pytest

    from ottla.protocol.schema import Request, Struct
    from ottla.purgatory.pending import Pending
    from ottla.server.controller.channel import Requester

M = TypeVar("M", bound="Struct")
local_send = ControllerApis.send


def copied(kind: type[M], message: Struct, version: int) -> M:
    """Return what arrives of a message that is sent."""
    return codec.decode(kind, version, memoryview(codec.to_bytes(message, version)))


async def use(node: SimulatedNode) -> int:
    """Start a node, let clients change the cluster, and stop it; return the records read."""
    await node.start()
    async with node.admin() as admin:
        await admin.create_topic("t", partitions=2, configs={"retention.ms": "5000"})
        assert await admin.create_partitions({"t": 3}) == {"t": None}
        await admin.alter_configs({ConfigResource(ResourceType.TOPIC, "t"): {"retention.ms": "7"}})
        await admin.delete_topic("t")
        await admin.create_topic("u")
    async with node.producer() as producer:
        for number in range(5):
            await producer.send("u", b"%d" % number)
        await producer.flush()
    count = 0
    async with node.consumer("u", group_id="g", auto_offset_reset="earliest") as consumer:
        while count < 5:
            count += len(await consumer.poll(1.0))
    await node.stop()
    return count


def test_a_node_needs_nothing_of_its_controller_but_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Registration, heartbeats, producer ids and clients' changes survive the encoding."""
    sent: set[str] = set()

    def send(
        apis: ControllerApis, request: Request, requester: Requester | None = None
    ) -> Pending[Any]:
        sent.add(type(request).__name__.removesuffix("Request"))
        version = type(request).versions.highest
        kind = response_class(ApiKey(request.message_key))
        answer = local_send(apis, copied(type(request), request, version), requester)
        return answer.then(lambda response: copied(kind, response, version))

    monkeypatch.setattr(ControllerApis, "send", send)
    node = SimulatedNode(seed=3)
    assert node.run(use(node)) == 5
    assert sent >= {
        "AllocateProducerIds",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "CreatePartitions",
        "CreateTopics",
        "DeleteTopics",
        "IncrementalAlterConfigs",
    }
