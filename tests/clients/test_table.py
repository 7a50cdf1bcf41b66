"""Tables over compacted topics of a real node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients import table as table_module
from ottla.clients.blocking import Producer
from ottla.clients.table import AsyncTable, Table
from ottla.errors import ClosedError, ErrorCode, KafkaError, WakeupError
from tests.waits import WAIT_S, until

if TYPE_CHECKING:
    from ottla.testing.kafka import Kafka


def _topic(kafka: Kafka, partitions: int = 2, policy: str = "compact") -> str:
    config = {"cleanup.policy": policy}
    return str(kafka.topic("table", partitions=partitions, config=config))


def test_a_table_is_written_and_read_back(kafka: Kafka) -> None:
    """After `write` the value is there; another table reads it at its start, and follows."""
    topic, config = _topic(kafka), {"bootstrap.servers": kafka.bootstrap}
    changes: list[tuple[bytes, bytes | None]] = []
    with Table(topic, config=config, on_change=lambda *one: changes.append(one)) as table:
        for number in range(20):
            table.write(b"key-%d" % number, b"%d" % number)
        assert table[b"key-7"] == b"7"
        assert len(table) == 20
        with Table(topic, config=config) as other:
            assert sorted(other.items()) == sorted(table.items())
            other.write(b"key-7", None)
            assert b"key-7" not in other
            assert other.get(b"key-7") is None
            table.read_to_end()
            assert b"key-7" not in table
            assert set(table) == set(other)
    assert changes[-1] == (b"key-7", None)
    with pytest.raises(ClosedError):
        table.write(b"late", b"1")
    table.close()


def test_open_and_aborted_transactions_are_not_seen(kafka: Kafka) -> None:
    """The end that is read to is that of decided transactions, past their markers."""
    topic, config = _topic(kafka, 1), {"bootstrap.servers": kafka.bootstrap}
    with (
        Producer(bootstrap_servers=kafka.bootstrap, transactional_id="t") as producer,
        Table(topic, config=config) as table,
    ):
        producer.init_transactions()
        for value, is_committed in ((b"1", True), (b"2", False)):
            producer.begin_transaction()
            producer.send_and_wait(topic, value, b"key")
            if is_committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        table.read_to_end()
        assert table.items() == [(b"key", b"1")]
        table.write(b"key", b"3")
        assert table[b"key"] == b"3"


def test_a_log_that_lost_records_is_read_again(kafka: Kafka) -> None:
    """Records are deleted before the position of a table that was not reading."""
    topic = _topic(kafka, 1, "compact,delete")

    async def run() -> None:
        is_changed = asyncio.Event()
        config = {"bootstrap.servers": kafka.bootstrap}
        async with AsyncTable(topic, config=config, on_change=lambda *_: is_changed.set()) as table:
            for number in range(5):
                await table.write(b"key-%d" % number, b"1")
            partition = table._partitions[0]
            table._consumer.pause(partition)
            (outcome,) = (
                await asyncio.to_thread(kafka.admin.delete_records, {partition: 3})
            ).values()
            assert outcome == 3
            is_changed.clear()
            table._consumer.seek(partition, 1)  # as if it had read no further
            table._consumer.resume(partition)
            async with asyncio.timeout(WAIT_S):
                await is_changed.wait()
            assert sorted(key for key, _ in table.items()) == [b"key-3", b"key-4"]
            await table.write(b"key-5", b"1")
            assert len(table) == 3

    asyncio.run(run())


@pytest.mark.parametrize(
    "error",
    [
        ValueError("refused"),
        KafkaError(ErrorCode.INVALID_REQUEST, "refused"),
        WakeupError("refused"),
        ClosedError("refused"),
    ],
)
def test_an_error_of_on_change_ends_the_reading(kafka: Kafka, error: Exception) -> None:
    """Calls raise it: they do not wait for a reader that has ended.

    So they do for errors of the client: a reading that went on would skip the changes after it.
    """

    def refuse(_key: bytes, _value: bytes | None) -> None:
        raise error

    config = {"bootstrap.servers": kafka.bootstrap}
    with Table(_topic(kafka), config=config, on_change=refuse) as table:
        with pytest.raises(type(error), match="refused"):
            table.write(b"key", b"1")
        with pytest.raises(type(error), match="refused"):
            table.read_to_end()


def test_a_topic_that_does_not_exist_is_an_error(kafka: Kafka) -> None:
    """At the start, and nothing stays open."""
    config = {"bootstrap.servers": kafka.bootstrap}
    with pytest.raises(KafkaError):
        Table("no-such-table", config=config, timeout=0.5)


def test_a_table_goes_on_after_an_error_that_does_not_pass_by_itself(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls that wait raise it, one line of the log says so; then all that was missed is read."""
    for name in ("REFUSED_S", "RETRY_S"):
        monkeypatch.setattr(table_module, name, 0.001)
    topic, config = _topic(kafka, 1), {"bootstrap.servers": kafka.bootstrap}

    async def run() -> None:
        async with (
            AsyncTable(topic, config=config) as table,
            AsyncTable(topic, config=config) as other,
        ):
            poll, is_refused, refusals = table._consumer.poll, True, 0

            async def refusing_poll(timeout: float) -> Any:  # noqa: ASYNC109 - of the consumer
                nonlocal refusals
                records = await poll(0 if is_refused else timeout)
                if is_refused:
                    assert not records
                    refusals += 1
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                return records

            table._consumer.pause(*table._partitions)
            monkeypatch.setattr(table._consumer, "poll", refusing_poll)
            await other.write(b"key", b"1")
            with pytest.raises(KafkaError) as caught:
                await table.read_to_end()
            assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert table.get(b"key") is None
            await until(lambda: refusals > 3)
            is_refused = False
            table._consumer.resume(*table._partitions)
            await table.read_to_end()
            assert table[b"key"] == b"1"

    asyncio.run(run())
    assert caplog.text.count("cannot be read") == 1
