"""Who may join an in-sync set, and for whom DeleteRecords waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.metadata.broker import BrokerRegistration
from ottla.server.broker.replication import RegisteredBrokers
from ottla.types import Uuid

EPOCH = 5


def _known(*, fenced: bool, stopping: bool) -> RegisteredBrokers:
    """Return brokers of which 1 is registered."""
    broker = BrokerRegistration(1, EPOCH, Uuid(b"i" * 16), {}, {}, None, fenced, stopping)
    cluster = SimpleNamespace(brokers={1: broker})
    metadata: Any = SimpleNamespace(image=SimpleNamespace(cluster=cluster))
    return RegisteredBrokers(metadata, lambda: EPOCH)


@pytest.mark.parametrize(
    ("fenced", "stopping", "may_join", "is_unfenced"),
    [
        (False, False, True, True),
        (False, True, False, True),
        (True, False, False, False),
        (True, True, False, False),
    ],
)
def test_a_broker_in_controlled_shutdown_is_unfenced(
    fenced: bool,  # noqa: FBT001 - parametrized
    stopping: bool,  # noqa: FBT001 - parametrized
    may_join: bool,  # noqa: FBT001 - parametrized
    is_unfenced: bool,  # noqa: FBT001 - parametrized
) -> None:
    """It fetches until it ends, and joins no in-sync set (KIP-841)."""
    brokers = _known(fenced=fenced, stopping=stopping)
    assert brokers.may_join(1, EPOCH) is may_join
    assert not brokers.may_join(1, EPOCH - 1)
    assert brokers.is_unfenced(1) is is_unfenced


def test_a_broker_that_is_not_registered_is_not_alive() -> None:
    """Nothing is known of it."""
    brokers = _known(fenced=False, stopping=False)
    assert not brokers.is_unfenced(2)
    assert not brokers.may_join(2, -1)
