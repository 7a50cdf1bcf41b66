"""The pytest fixtures with `--ottla-url`: the examples of docs/testing.md on real Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.kafka import RealKafka, kafka_or_skip
from tests.ports import free_ports
from tests.testing.test_document import count, plain, run, write

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.conformance


def test_the_examples_pass_on_real_kafka(real_kafka: RealKafka, tmp_path: Path) -> None:
    """Tests that start a node of their own are skipped, and no other."""
    chosen = [example for _, example in plain() if "conftest.py" not in example.files]
    for number, example in enumerate(chosen):
        write(tmp_path / f"example{number}", example)
    outcomes, output = run(tmp_path, "--ottla-url", real_kafka.bootstrap, "-rs")
    own = sum(
        text.count("(kafka_cluster)") + text.count("@pytest.mark.kafka")
        for example in chosen
        for text in example.files.values()
    )
    assert outcomes == {"passed": count(chosen) - own, "skipped": own}, output
    assert output.count("needs a broker of its own, but --ottla-url names") >= 1


STOCK_CLIENTS = """
import asyncio, aiokafka, confluent_kafka, ottla
from kafka import KafkaProducer

def test_every_client_logs_in(kafka):
    orders = kafka.topic("orders", exact=True).produce("0")
    with ottla.Producer(config=kafka.client_settings) as producer:
        producer.send(orders, "1")
    with KafkaProducer(**kafka.kafka_python()) as producer:
        producer.send(orders, b"2").get(10)
    producer = confluent_kafka.Producer(kafka.confluent())
    producer.produce(orders, b"3")
    assert producer.flush(60) == 0

    async def send():
        async with aiokafka.AIOKafkaProducer(**kafka.aiokafka()) as producer:
            await producer.send_and_wait(orders, b"4")

    asyncio.run(send())
    assert orders.values_text() == ["0", "1", "2", "3", "4"]
"""


def test_a_broker_with_a_login_is_reached(tmp_path: Path) -> None:
    """By the fixture's clients and, with its settings, by those of other libraries."""
    (port,) = free_ports(1)
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required "
    users = 'username="u" password="p" user_u="p";'
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": jaas + users,
    }
    (tmp_path / "kafka").mkdir()
    kafka = RealKafka(kafka_or_skip(), tmp_path / "kafka", properties)
    kafka.properties["listeners"] += f",LOGIN://127.0.0.1:{port}"
    try:
        kafka.format()
        kafka.start()
        tests = tmp_path / "tests"
        tests.mkdir()
        (tests / "test_clients.py").write_text(STOCK_CLIENTS)
        (tests / "client.properties").write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={jaas}username="u" password="p";\n'
        )
        options = ("--ottla-url", f"127.0.0.1:{port}", "--ottla-config", "client.properties")
        outcomes, output = run(tests, *options)
    finally:
        kafka.kill()
    assert outcomes == {"passed": 1}, output
