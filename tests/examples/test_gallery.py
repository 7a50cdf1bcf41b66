"""The examples of `examples/` that need no Spark, run against the node that the tests share."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from examples.pytest_suite.test_billing import (  # noqa: F401 - pytest finds them here
    test_a_paid_order_has_one_invoice,
    test_other_orders_have_none,
)

from examples import (
    clients_asyncio,
    clients_blocking,
    log_pipeline,
    metric_pipeline,
    worker,
)
from tests.waits import read_records

if TYPE_CHECKING:
    from ottla.testing import Kafka, KafkaFactory


def consume(kafka: Kafka, topic: str, count: int) -> list[bytes]:
    """Return the first values of a topic."""
    with kafka.consumer(topic, group=kafka.group("test")) as consumer:
        return [record.value or b"" for record in read_records(consumer, count)]


def test_clients(kafka_cluster: KafkaFactory, capsys: pytest.CaptureFixture[str]) -> None:
    """The blocking and the asyncio clients, on a node of their own."""
    kafka = kafka_cluster()
    clients_blocking.main(kafka.bootstrap)
    asyncio.run(clients_asyncio.main(kafka.bootstrap, 100))
    assert "stored in partition" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of FastAPI's test client
def test_fastapi(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is answered with the order's place; a wrong one is refused before it is sent."""
    from fastapi.testclient import TestClient  # late: takes every process half a second

    from examples import fastapi_orders

    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", kafka.bootstrap)
    with TestClient(fastapi_orders.app) as client:
        answer = client.post("/orders", json={"id": 1, "total": 9.5})
        assert (answer.status_code, answer.json()["offset"]) == (201, 0)
        assert client.post("/orders", json={"id": "x"}).status_code == 422
    assert json.loads(consume(kafka, fastapi_orders.TOPIC, 1)[0]) == {"id": 1, "total": 9.5}


def test_worker(kafka: Kafka) -> None:
    """Nine tasks are done, one after two failures; the broken one is in the dead-letter topic."""
    assert worker.main(kafka.bootstrap) == 9
    with kafka.consumer(worker.FAILED, group=kafka.group("test")) as consumer:
        (failed,) = consumer.poll(5.0)
    assert failed.value == b"{broken"
    assert b"JSONDecodeError" in (dict(failed.headers)["cause"] or b"")


def test_log_pipeline(kafka: Kafka) -> None:
    """Errors by service; a line without the format is kept."""
    assert log_pipeline.main(kafka.bootstrap) == {"payment": 2, "web": 1}


def test_metric_pipeline(kafka: Kafka) -> None:
    """Means by host and minute of event time."""
    means = asyncio.run(metric_pipeline.main(kafka.bootstrap))
    assert means == {
        "a 0": 0.125, "a 1": 0.185, "b 0": 0.525, "b 1": 0.585, "c 0": 0.825, "c 1": 0.885
    }  # fmt: skip
