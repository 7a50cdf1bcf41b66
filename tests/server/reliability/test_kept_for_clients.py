"""Clients that fill memory by names of their own: what is kept after they have left is bounded."""

from __future__ import annotations

import gc
import logging
import os
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin
from ottla.clients.admin.quotas import QuotaChange
from ottla.protocol import frames
from ottla.server.requests.api import served_apis
from ottla.server.requests.dispatch import Dispatcher
from ottla.testing.cluster import Cluster
from ottla.types import Uuid
from tests.server.reliability.largest_requests import FakeConnection, single, usual
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metrics.ledger import Kept
    from ottla.server.node.node import Node

ROUNDS = int(os.environ.get("OTTLA_TEST_HOSTILE_ROUNDS", "1"))
REQUESTS = 20
"""Of each API in a round, each of another client with names of its own."""
NAME_LENGTH = 16_000
"""More than a bounded cache takes as one entry."""
KEPT_OF_A_REQUEST = 2_000
"""Bytes: an eighth of one of its names, of which most have several."""
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "connections.max.idle.ms": "3600000",
}


def named(cls: Any, version: int, number: int) -> Any:
    """Return a message with long names, like no other's, wherever it has texts."""
    message = usual(cls, "", number)
    for field in cls.fields:
        if version not in field.versions:
            continue
        text = f"{number}".ljust(NAME_LENGTH, "x")
        if field.struct is not None:
            value: Any = named(field.struct, version, number)
        else:
            value = text if field.element == "str" else single(field, "", number)
        if field.element == "Uuid":
            value = Uuid(number.to_bytes(16, "big"))
        setattr(message, field.name, [value] if field.is_array else value)
    if hasattr(message, "acks"):
        message.acks = 1
    if hasattr(message, "max_wait_ms"):
        message.max_wait_ms = 0
    return message


def hostile_frames(api: Any, start: int) -> Iterator[memoryview]:
    """Yield the requests of as many clients."""
    for number in range(start, start + REQUESTS):
        message = named(api.request, api.highest, number)
        client_id = f"{number}".ljust(NAME_LENGTH, "c")
        parts: list[Any] = frames.encode_request(message, api.highest, 5, client_id)
        yield memoryview(bytearray(b"".join(parts)[4:]))


def send(connection: Any, frame: memoryview, node: Node) -> Dispatcher:
    """Let a dispatcher handle a request."""
    dispatcher = Dispatcher(node.broker, "broker", lambda: 0.0, None)
    dispatcher.handle_frame(connection, frame)
    return dispatcher


def flood(cluster: Cluster, api: Any, start: int) -> None:
    """Send each request over a connection of its own, which is closed after the answer."""
    for frame in hostile_frames(api, start):
        connection: Any = FakeConnection()
        connection.principal = connection.principal._replace(name="mallory")
        dispatcher = cluster.run(partial(send, connection, frame))
        wait_for(partial(getattr, connection, "is_answered"))
        connection.is_closed = True
        cluster.run(partial(_closed, dispatcher, connection))


def _closed(dispatcher: Dispatcher, connection: Any, _node: Node) -> None:
    dispatcher.connection_closed(connection)


def kept(cluster: Cluster) -> list[Kept]:
    """Return the ledger."""
    return cluster.run(lambda node: node.broker.ledger.kept())


@pytest.mark.soak
def test_what_clients_leave_behind_is_bounded() -> None:
    """Each API, by a user without a right: memory after the clients have left, and the ledger."""
    with Cluster(config=SECURED) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            limits = {"request_percentage": 1e6, "producer_byte_rate": 1e12}
            admin.alter_client_quotas([QuotaChange({"user": None}, limits)])
        wait_for(lambda: cluster.run(lambda node: node.broker.quotas.is_on))
        grown: dict[str, int] = {}
        apis = served_apis("broker").values()
        for api in apis:
            flood(cluster, api, 0)
        logging.disable()  # pytest keeps the lines
        gc.collect()
        gc.freeze()  # each collection below looks at what came since, not at all modules and tests
        tracemalloc.start(1)
        try:
            before, _ = tracemalloc.get_traced_memory()
            for api in apis:
                for number in range(1, ROUNDS + 1):
                    flood(cluster, api, number * 1000)
                gc.collect()
                after, _ = tracemalloc.get_traced_memory()
                grown[api.key.name] = (after - before) // (ROUNDS * REQUESTS)
                before = after
        finally:
            tracemalloc.stop()
            logging.disable(logging.NOTSET)
        holders = kept(cluster)
    assert len(grown) > 60
    assert not {name: size for name, size in grown.items() if size > KEPT_OF_A_REQUEST}
    assert {one.name for one in holders} > {"fetch_sessions", "authorizer_decisions"}
    assert not [one for one in holders if one.used_bytes > one.bound_bytes]
