"""The largest legal request of each API: no turn of the loop works longer than about 10 ms."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ottla.testing.cluster import Cluster
from tests.server.reliability.largest_requests import (
    MAX_CALLS,
    CallCounter,
    FakeConnection,
    largest,
    send,
)
from tests.server.requests.untrusted_clients import create_topic
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from ottla.purgatory.work import Work

WHOLE = bool(os.environ.get("OTTLA_TEST_LARGEST"))
"""As many elements as the API may have, which takes some minutes; else enough to need parts."""
USUAL_ELEMENTS = 3_000
LIMIT_S = 600.0 if WHOLE else WAIT_S
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "listeners": "CLIENTS://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}


@pytest.mark.soak
@pytest.mark.parametrize("rights", ["all", "none"])
def test_no_turn_is_long(rights: str) -> None:
    """Each array of each request, on both kinds of listeners; to a client without rights, too."""
    with Cluster(config=SECURED if rights == "none" else {}) as cluster:
        if rights == "all":
            assert create_topic(cluster, "t1") == [0]
        bound = None if WHOLE else USUAL_ELEMENTS
        too_long, count = [], 0
        for kind in ("broker", "controller"):
            for name, frame in largest(kind, bound, "t1"):
                connection: Any = FakeConnection()
                if rights == "none":
                    connection.principal = connection.principal._replace(name="mallory")
                counter = cluster.run(partial(send, connection, frame, kind))
                wait_for(partial(getattr, connection, "is_answered"), LIMIT_S)
                cluster.run(counter.end)
                count += 1
                if counter.most > MAX_CALLS:
                    too_long.append((counter.most, kind, name, counter.where))
    assert count > 150
    assert not too_long


@pytest.mark.soak
def test_works_of_short_steps_do_not_count_as_a_long_turn() -> None:
    """As many as the time of a turn allows are run in it: more on a faster machine."""
    steps = 20_000

    def short_steps() -> Work[None]:
        for _ in range(steps):
            yield

    with Cluster() as cluster:
        counter = cluster.run(CallCounter)
        done = cluster.run(lambda node: node.broker.worker.begin(short_steps()))
        wait_for(lambda: done.done)
        cluster.run(counter.end)
    assert counter.most < steps / 10, counter.where
