"""Examples in the docstrings of the clients."""

from __future__ import annotations

import asyncio
import doctest
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.clients.admin.configs import ConfigResource, ResourceType

if TYPE_CHECKING:
    from ottla.testing import KafkaFactory

CLIENTS = (
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "Producer",
    "ShareConsumer",
)


@pytest.mark.parametrize("name", CLIENTS)
def test_examples_run(name: str, kafka_cluster: KafkaFactory) -> None:
    """Each example of a client prints what it says."""
    names = {client: getattr(ottla, client) for client in (*CLIENTS, "AcknowledgeType")}
    helpers = {"asyncio": asyncio, "ConfigResource": ConfigResource, "ResourceType": ResourceType}
    servers = {"servers": kafka_cluster().bootstrap}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in doctest.DocTestFinder().find(names[name], name, globs=names | helpers | servers):
        runner.run(example)
    assert runner.tries
    assert not runner.failures
