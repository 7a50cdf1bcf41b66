"""Drivers and tasks that go on after their batch has ended or another driver began, without a JVM.

Also on Kafka, with an epoch for each transaction and without: it decides who is fenced.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa

from ottla import Admin
from ottla.errors import ErrorCode, KafkaError
from ottla.spark import exactly_once
from ottla.spark.cluster import open_cluster
from ottla.spark.coordination import Coordination
from ottla.spark.decision import BatchDecision
from ottla.spark.exactly_once import FENCED, BatchStart, ExactlyOnce, driver_id
from ottla.spark.options import write_options
from ottla.spark.sending import TaskTransaction
from ottla.spark.writing import FrameColumns, FrameWriter
from ottla.streams.run.supervisor import is_final
from ottla.testing.cluster import Cluster
from tests.conformance.kafka import RealKafka, kafka_or_skip
from tests.spark.test_fencing import checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.clients.cluster_reader import ClusterReader
    from ottla.spark.decision import Participant


FRAME = pa.record_batch([pa.array([b"value"])], names=["value"])


class Query:
    """A query's checkpoint, and what its drivers and tasks are given."""

    def __init__(self, cluster: ClusterReader, bootstrap: str, group: str, path: Path) -> None:
        self.cluster, self._path = cluster, path
        self._options = write_options(
            {"kafka.bootstrap.servers": bootstrap, "topic": "next", "kafka.group.id": group}
        )
        checkpoint(path, group)
        (path / "offsets" / "1").write_text("v1\n{}\n")

    def driver(self) -> ExactlyOnce:
        """Return what a driver begins and ends batches with."""
        return ExactlyOnce(self._options, str(self._path), self.cluster)

    def task(self, plan: BatchStart, number: int = 0) -> FrameWriter:
        """Return what the first attempt of a task writes with."""
        name = f"{plan.task_prefix}{number}-0.0"
        transaction = TaskTransaction(name, two_phase=True, mark=plan.mark, driver=plan.driver_mark)
        columns = FrameColumns(0, None, None, None, None, None)
        return FrameWriter(self._options, columns, 0, transaction)

    def written(self, plan: BatchStart) -> list[Participant]:
        """Write a record, as a task does, and return the transaction, which is open."""
        participant = self.task(plan).write(iter([FRAME])).participant
        assert participant is not None
        return [participant]


NODES = ("ottla", *(pytest.param(version, marks=pytest.mark.conformance) for version in "12"))


@pytest.fixture(scope="module", params=NODES)
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster | RealKafka]:
    """Run a node: Ottla's, or Kafka's with one of both versions of transactions."""
    if request.param == "ottla":
        with Cluster() as cluster:
            yield cluster
        return
    kafka = RealKafka(kafka_or_skip(), tmp_path_factory.mktemp("kafka"), {})
    try:
        kafka.format("--feature", f"transaction.version={request.param}")
        kafka.start()
        yield kafka
    finally:
        kafka.kill()


@pytest.fixture
def query(
    node: Cluster | RealKafka, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Query]:
    """Return a query of a group of its own."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("next", if_not_exists=True)
    group = re.sub(r"\W", "-", request.node.name)
    with open_cluster({"bootstrap.servers": node.bootstrap}) as cluster:
        yield Query(cluster, node.bootstrap, group, tmp_path)


@pytest.mark.parametrize("ended", ["failed", "some ended, then failed", "committed"])
def test_a_task_that_goes_on_after_its_batch_leaves_nothing_open(query: Query, ended: str) -> None:
    """Spark does not wait for the tasks that it kills; their transactions have no timeout."""
    driver = query.driver()
    plan = driver.begin()
    begun, late = query.task(plan, 1), query.task(plan, 2)
    begun._sender.begin_transaction()  # it has written nothing yet
    if ended == "committed":
        driver.commit(plan, 0, [])
    else:
        driver.abort(plan if ended.startswith("some") else None, 0)
    begun._write_frame(FRAME)
    with pytest.raises(KafkaError) as refused:
        begun._sender.flush()
    assert refused.value.code in FENCED
    with pytest.raises(KafkaError, match="without this one"):
        late.write(iter([FRAME]))
    assert Coordination(query.cluster).open_transactions(f"{plan.group_id}-task-") == []
    begun._sender.close()
    following = driver.begin()
    assert following.task_prefix != plan.task_prefix
    assert following.mark != plan.mark


def test_a_batch_whose_transaction_was_aborted_is_not_decided(query: Query) -> None:
    """By its timeout or an administrator: decided on, the batch would never be written again."""
    driver = query.driver()
    plan = driver.begin()
    participants = query.written(plan)
    Coordination(query.cluster).advance([participants[0].transactional_id])
    with pytest.raises(KafkaError, match=r"is not decided: transaction .* was aborted"):
        driver.commit(plan, 0, participants)
    following = query.driver()
    plan = following.begin()
    assert plan.decided_batch == -1
    following.commit(plan, 0, query.written(plan))
    assert query.driver().begin().decided_batch == 0


def test_a_repeated_batch_must_change_the_state_as_the_first_time(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    """Its records are not written again: the state that belongs to them is the first run's."""
    driver = query.driver()
    plan = driver.begin()
    driver.commit(plan, 0, query.written(plan), 17)
    plan = query.driver().begin()
    for same in (17, None):  # None: the program has no digest any more
        query.driver().commit(plan, 0, [], same)
    with pytest.raises(KafkaError, match="repeated with other changes of the state") as refused:
        query.driver().commit(plan, 0, [], 18)
    assert "\n" not in str(refused.value)
    assert is_final(RuntimeError(f"as Spark has it: {refused.value}"))
    goes_on = query.driver()
    goes_on._options = replace(goes_on._options, fail_on_data_loss=False)
    goes_on.commit(plan, 0, [], 18)
    assert "other changes of the state" in caplog.text


def test_a_batch_that_reuses_a_number_is_not_taken_for_the_decided_one(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint restored from a copy, or without its last files, plans other offsets."""
    plans = []
    for number in (0, 1):
        plans.append(query.driver().begin())
        query.driver().commit(plans[-1], number, query.written(plans[-1]))
    plan = query.driver().begin()
    query.driver().commit(plan, 1, [])  # Spark repeats it with the offsets in its checkpoint
    of_earlier_version = replace(plan, decided_sources=None)
    (query._path / "offsets" / "1").write_text('v1\n{}\n{"other": 5}')
    query.driver().commit(of_earlier_version, 1, [])
    for number in (0, 1):
        with pytest.raises(KafkaError, match="ends at other offsets than the one") as refused:
            query.driver().commit(plan, number, [])
        assert "\n" not in str(refused.value)
        assert is_final(RuntimeError(f"as Spark has it: {refused.value}"))
    goes_on = query.driver()
    goes_on._options = replace(goes_on._options, fail_on_data_loss=False)
    goes_on.commit(plan, 1, [])
    assert "the checkpoint is older" in caplog.text


def test_attempts_that_fail_leave_the_last_decision_as_it_is(query: Query) -> None:
    """They have names of their own: fencing one that was decided on looks like a loss."""
    driver = query.driver()
    plan = driver.begin()
    driver.commit(plan, 0, query.written(plan))
    for _ in range(10):
        failed = query.task(driver.begin())
        failed._sender.begin_transaction()
        failed._sender.close()
        driver.abort(None, 1)
    assert driver.begin().decided_batch == 0


def test_a_query_that_was_stopped_has_other_names_when_it_starts_again(query: Query) -> None:
    """Its tasks may go on, also if nothing could end their batch."""
    driver = query.driver()
    stopped, following = driver.begin(), driver.begin()
    assert stopped.task_prefix != following.task_prefix
    participants = query.written(following)
    with pytest.raises(KafkaError):
        query.written(stopped)
    driver.commit(following, 0, participants)


@pytest.mark.parametrize("stopped_in", ["begin", "commit", "abort"])
def test_a_driver_that_was_stopped_leaves_the_next_ones_transactions(
    query: Query, monkeypatch: pytest.MonkeyPatch, stopped_in: str
) -> None:
    """It has fenced or decided, and goes on once the next one's tasks have written."""
    monkeypatch.setattr(exactly_once, "_driver_name", lambda: "first")
    first, second = query.driver(), query.driver()
    plan = None if stopped_in == "begin" else first.begin()
    place = {"begin": "_checked_decision", "commit": "_commit_all", "abort": "_decision"}
    unchanged = getattr(first, place[stopped_in])
    begun: list[tuple[BatchStart, list[Participant]]] = []

    def stopped(*arguments: object, is_stable: bool = True, **named: object) -> object:
        if not is_stable:  # before it fences
            return unchanged(is_stable=False)
        answer = unchanged(*arguments, **named)
        monkeypatch.setattr(exactly_once, "_driver_name", lambda: "second")
        other = second.begin()
        begun.append((other, query.written(other)))
        monkeypatch.setattr(exactly_once, "_driver_name", lambda: "first")
        return answer

    monkeypatch.setattr(first, place[stopped_in], stopped)
    if stopped_in == "begin":
        with pytest.raises(KafkaError, match="another driver runs this query"):
            first.begin()
    elif stopped_in == "commit":
        assert plan is not None
        first.commit(plan, 0, query.written(plan))
    else:
        first.abort(plan, 0)
    ((other, participants),) = begun
    monkeypatch.setattr(exactly_once, "_driver_name", lambda: "second")
    second.commit(other, 1, participants)  # KafkaError if they were ended otherwise


def test_a_driver_that_is_fenced_after_its_decision_leaves_what_it_decided(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know that it has decided; the next driver has fenced it, and commits later."""
    monkeypatch.setattr(exactly_once, "_driver_name", lambda: "first")
    first, second = query.driver(), query.driver()
    plan = first.begin()
    participants = query.written(plan)
    first._decide(plan.driver, BatchDecision(first._query_id, 0, tuple(participants)))
    Coordination(query.cluster).advance([driver_id(plan.group_id)])
    first.abort(plan, 0)
    monkeypatch.setattr(exactly_once, "_driver_name", lambda: "second")
    assert second.begin().decided_batch == 0  # KafkaError if they were ended otherwise


def test_a_task_of_a_driver_that_was_killed_writes_nothing(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors outlive it for a moment; what they begin would stay open once the query ends."""
    monkeypatch.setattr(exactly_once, "_driver_name", lambda: "killed")
    plan = query.driver().begin()
    monkeypatch.setattr(exactly_once, "_driver_name", lambda: "following")
    query.driver().begin()
    with pytest.raises(KafkaError) as refused:
        query.written(plan)
    assert refused.value.code is ErrorCode.PRODUCER_FENCED
    assert Coordination(query.cluster).open_transactions(f"{plan.group_id}-task-") == []


@pytest.mark.parametrize("ending", ["-task", "-task-1"])
def test_a_query_leaves_those_of_a_group_whose_name_begins_like_its_own(
    query: Query, node: Cluster | RealKafka, tmp_path: Path, ending: str
) -> None:
    """A group's name is the user's choice."""
    first = query.driver()
    group = first.begin().group_id + ending
    other = Query(query.cluster, node.bootstrap, group, tmp_path / "other")
    driver = other.driver()
    plan = driver.begin()
    participants = other.written(plan)
    first.begin()
    driver.commit(plan, 0, participants)
