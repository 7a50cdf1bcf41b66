"""Two drivers of one query, a reset group, another query's group: one line each, without a JVM."""

from __future__ import annotations

import json
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from ottla import Admin, Producer
from ottla.errors import ErrorCode, KafkaError
from ottla.spark import exactly_once
from ottla.spark.cluster import open_cluster
from ottla.spark.coordination import NEVER_BEGUN_MS, Committed, Coordination
from ottla.spark.decision import Participant
from ottla.spark.exactly_once import ExactlyOnce, _driver_name, driver_id
from ottla.spark.options import write_options
from ottla.spark.sink import StreamWriter, TaskCommit, WriteRefused
from ottla.streams.run.supervisor import is_final
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster


def checkpoint(directory: Path, query_id: str) -> str:
    """Write what the sink reads of a checkpoint: the query's id, and a batch without sources."""
    (directory / "offsets").mkdir(parents=True)
    (directory / "metadata").write_text(json.dumps({"id": query_id}))
    (directory / "offsets" / "0").write_text("v1\n{}\n")
    return str(directory)


def test_a_second_driver_fences_the_first(node: Cluster, tmp_path: Path) -> None:
    """The first one can decide nothing from then on, and says who goes on."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("fenced")
    options = write_options(
        {
            "kafka.bootstrap.servers": node.bootstrap,
            "topic": "fenced",
            "kafka.group.id": "two-drivers",
        }
    )
    location = checkpoint(tmp_path / "one", "query")
    config = {"bootstrap.servers": node.bootstrap}
    with open_cluster(config) as first_cluster, open_cluster(config) as second_cluster:
        first = ExactlyOnce(options, location, first_cluster)
        second = ExactlyOnce(options, location, second_cluster)
        plan = first.begin()
        other = second.begin()
        with pytest.raises(KafkaError, match="another driver runs this query") as refused:
            first.commit(plan, 0, [])
        second.commit(other, 0, [])
        assert refused.value.code is ErrorCode.PRODUCER_FENCED
        assert "\n" not in str(refused.value)
        assert is_final(RuntimeError(f"as Spark has it: {refused.value}"))
        other_query = ExactlyOnce(options, checkpoint(tmp_path / "two", "other"), first_cluster)
        with pytest.raises(KafkaError, match="another checkpoint"):
            other_query.begin()


def test_a_killed_attempt_does_not_hold_readers_up(node: Cluster, tmp_path: Path) -> None:
    """Its transaction, which has no timeout, is aborted with the batch's commit."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("attempts")
    given = {"kafka.bootstrap.servers": node.bootstrap, "topic": "attempts"}
    options = write_options({**given, "kafka.group.id": "attempts"})
    location = checkpoint(tmp_path, "query")
    config = {"bootstrap.servers": node.bootstrap}
    with open_cluster(config) as cluster:
        sink = ExactlyOnce(options, location, cluster)
        plan = sink.begin()
        with Producer(
            bootstrap_servers=node.bootstrap,
            transactional_id=f"{plan.task_prefix}0-1.3",
            transaction_two_phase_commit_enable=True,
        ) as killed:
            killed.init_transactions()
            killed.begin_transaction()
            killed.send("attempts", b"lost").result(60)
            sink.commit(plan, 0, [])
            assert Coordination(cluster).open_transactions("attempts-task-") == []


def test_many_transactions_are_ended_at_once(node: Cluster) -> None:
    """One that another producer has fenced is an error of its own."""
    names = [f"many-{number}" for number in range(40)]
    with open_cluster({"bootstrap.servers": node.bootstrap}) as cluster:
        coordination = Coordination(cluster)
        producers = {name: coordination.init_producer(name, NEVER_BEGUN_MS) for name in names}
        fenced = names[7]
        coordination.init_producer(fenced, NEVER_BEGUN_MS)
        ones = [Participant(name, *producers[name][:3]) for name in names]
        errors = coordination.end_all(ones, committed=False)
        codes = {
            name: None if one is None else one.code for name, one in zip(names, errors, strict=True)
        }
        assert codes == {
            name: ErrorCode.PRODUCER_FENCED if name == fenced else None for name in names
        }


def test_a_batch_without_tasks_is_decided(node: Cluster, tmp_path: Path) -> None:
    """Its offsets are committed like those of all others."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("no-tasks")
    given = {
        "kafka.bootstrap.servers": node.bootstrap,
        "topic": "no-tasks",
        "kafka.group.id": "no-tasks",
        "checkpointLocation": checkpoint(tmp_path, "query"),
    }
    writer = StreamWriter(given, StructType([StructField("value", BinaryType())]))
    writer.commit([], 0)
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        (found,) = admin.list_group_offsets("no-tasks").values()
    assert found is not None
    assert json.loads(found.metadata)["batch"] == 0


def test_a_batch_before_the_first_topic_is_not_decided(node: Cluster, tmp_path: Path) -> None:
    """Its offsets have no place; the query goes on with the topic's, and not without them."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("first")
        found = admin.describe_topics(["first"])["first"]
    assert not isinstance(found, KafkaError)
    topic_id = str(found.topic_id)
    location = Path(checkpoint(tmp_path, "early"))
    given = {
        "kafka.bootstrap.servers": node.bootstrap,
        "kafka.group.id": "early",
        "checkpointLocation": str(location),
    }
    (location / "commits").mkdir()
    schema = StructType([StructField("topic", StringType()), StructField("value", BinaryType())])

    def commit(batch_id: int, offsets: dict[str, Any]) -> None:
        (location / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{json.dumps(offsets)}")
        StreamWriter(given, schema).commit([], batch_id)
        (location / "commits" / str(batch_id)).write_text("v1\n{}")

    def decided() -> list[int]:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            found = admin.list_group_offsets("early").values()
        return [json.loads(one.metadata)["batch"] for one in found if one is not None]

    commit(0, {})
    commit(1, {})
    assert decided() == []
    commit(2, {"first": {"id": topic_id, "0": 0}})
    assert decided() == [2]
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.delete_groups(["early"])
    with pytest.raises(KafkaError, match="has no decision on one"):
        commit(3, {"first": {"id": topic_id, "0": 0}})


def test_a_fenced_driver_does_not_fence_the_one_after_it(node: Cluster, tmp_path: Path) -> None:
    """Spark aborts a failed batch: the driver that goes on keeps its epoch and its transactions."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("survivor")
    given = {
        "kafka.bootstrap.servers": node.bootstrap,
        "topic": "survivor",
        "kafka.group.id": "survivor",
        "checkpointLocation": checkpoint(tmp_path, "query"),
    }
    schema = StructType([StructField("value", BinaryType())])
    with open_cluster({"bootstrap.servers": node.bootstrap}) as cluster:
        sink = ExactlyOnce(write_options(given), str(tmp_path), cluster)
        first, second = sink.begin(), sink.begin()
        task = "survivor-task-other-run-0-0-0.0"
        producer = Coordination(cluster).init_producer(task, NEVER_BEGUN_MS, two_phase=True)
        with Producer(
            bootstrap_servers=node.bootstrap,
            transactional_id=task,
            transaction_two_phase_commit_enable=True,
        ) as open_task:
            open_task.init_transactions()
            open_task.begin_transaction()
            open_task.send("survivor", b"kept").result(60)
            # some tasks of the fenced driver have written, then none
            StreamWriter(given, schema).abort([TaskCommit(1, turn=first.turn), None], 0)
            StreamWriter(given, schema).abort([None, None], 0)
            assert Coordination(cluster).open_transactions("survivor-task-") == [task]
            open_task.commit_transaction()
        sink.commit(second, 0, [])
    assert producer.is_two_phase


def test_a_driver_has_another_name_than_the_one_it_replaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Containers of one host name number their processes alike; each aborts its own tasks."""
    assert _driver_name() == _driver_name()
    starts = count(1)
    monkeypatch.setattr(
        exactly_once, "spark_jvm", lambda: SimpleNamespace(pid=1, create_time=lambda: next(starts))
    )
    assert _driver_name() != _driver_name()


def test_a_query_that_may_not_write_is_refused_in_one_line(
    node: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The check runs while PySpark serialises the writer, which hides other errors in its own."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("refused")
    given = {
        "kafka.bootstrap.servers": node.bootstrap,
        "topic": "refused",
        "kafka.group.id": "refused",
    }
    with open_cluster({"bootstrap.servers": node.bootstrap}) as cluster:
        one = checkpoint(tmp_path / "one", "one")
        sink = ExactlyOnce(write_options(given), one, cluster)
        sink.commit(sink.begin(), 0, [])
    schema = StructType([StructField("value", BinaryType())])
    other = checkpoint(tmp_path / "two", "two")
    writer = StreamWriter({**given, "checkpointLocation": other}, schema)
    with pytest.raises(KafkaError, match="another checkpoint") as refused:
        CloudPickleSerializer().dumps(writer)  # type: ignore[no-untyped-call]
    assert type(refused.value) is WriteRefused
    assert "Traceback" not in capfd.readouterr().err


def test_another_checkpoint_does_not_fence(node: Cluster, tmp_path: Path) -> None:
    """An application of the same id is refused before it could end the other's run."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("same-id")
    given = {"kafka.bootstrap.servers": node.bootstrap, "topic": "same-id"}
    options = write_options({**given, "kafka.group.id": "same-id"})
    one = checkpoint(tmp_path / "one", "one")
    (tmp_path / "one" / "offsets" / "1").write_text("v1\n{}\n")
    with open_cluster({"bootstrap.servers": node.bootstrap}) as cluster:
        first = ExactlyOnce(options, one, cluster)
        first.commit(first.begin(), 0, [])
        plan = first.begin()
        other = ExactlyOnce(options, checkpoint(tmp_path / "two", "two"), cluster)
        with pytest.raises(KafkaError, match="another checkpoint"):
            other.begin()
        first.commit(plan, 1, [])


def test_a_decision_that_was_not_made_does_not_hold_the_next_driver_up(
    node: Cluster, tmp_path: Path
) -> None:
    """Killed between the offsets and the end of its transaction; it would be open for a minute."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("undecided")
    given = {"kafka.bootstrap.servers": node.bootstrap, "topic": "undecided"}
    options = write_options({**given, "kafka.group.id": "undecided"})
    location = checkpoint(tmp_path, "query")
    with open_cluster({"bootstrap.servers": node.bootstrap}) as cluster:
        sink = ExactlyOnce(options, location, cluster)
        sink.commit(sink.begin(), 0, [])
        plan = sink.begin()
        offsets = {TopicPartition("undecided", 0): Committed(1, "")}
        driver = driver_id("undecided")
        Coordination(cluster).add_offsets(driver, plan.driver, "undecided", offsets)
        begun_s = time.monotonic()
        assert sink.begin().decided_batch == 0
        assert time.monotonic() - begun_s < exactly_once.DRIVER_TIMEOUT_MS / 1000
