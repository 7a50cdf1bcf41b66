"""A driver that is killed at each point of a batch: the next one writes the batch once, no JVM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from ottla import Admin  # noqa: E402
from ottla.spark.cluster import open_cluster  # noqa: E402
from ottla.spark.coordination import Coordination  # noqa: E402
from ottla.spark.exactly_once import BatchStart, ExactlyOnce  # noqa: E402
from ottla.spark.options import write_options  # noqa: E402
from ottla.spark.sending import TaskTransaction  # noqa: E402
from ottla.spark.writing import FrameColumns, FrameWriter  # noqa: E402
from tests.spark.pipelines import committed  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.spark.decision import Participant
    from ottla.spark.options import WriteOptions
    from ottla.testing.cluster import Cluster

TASKS = 2
POINTS = [
    "within a write",
    "before the decision",
    "within the decision",
    "after the decision",
    "between two markers",
    "before Spark's commit log",
]


class KilledError(Exception):
    """Stands for SIGKILL: nothing is cleaned up after it."""


class Driver:
    """A driver of one batch, which is killed at a point."""

    def __init__(self, options: WriteOptions, location: str, point: str, run: str) -> None:
        self._options, self._location = options, location
        self._point, self._run = point, run
        self._ended = 0

    def run(self) -> None:
        """Run the batch as Spark does."""
        with open_cluster(self._options.config) as cluster:
            sink = ExactlyOnce(self._options, self._location, cluster)
            self._guard(sink._coordination)
            plan = sink.begin()
            participants = []
            for task in range(TASKS):
                participants += self._write(plan, task)
                self._reach("within a write")
            self._reach("before the decision")
            sink.commit(plan, 0, participants)
            self._reach("before Spark's commit log")

    def _write(self, plan: BatchStart, task: int) -> list[Participant]:
        if plan.decided_batch >= 0:
            return []
        name = f"{plan.group_id}-task-{self._run}-0-{task}-0.0"
        columns = FrameColumns(0, None, None, 1, None, None)
        transaction = TaskTransaction(name, two_phase=True)
        writer = FrameWriter(self._options, columns, task, transaction)
        frame = pa.record_batch(
            [pa.array([b"%d" % task]), pa.array([task], pa.int32())], names=["value", "partition"]
        )
        written = writer.write(iter([frame]))
        assert written.participant is not None
        return [written.participant]

    def _guard(self, coordination: Coordination) -> None:
        """Kill the driver when it ends the transaction of the point."""
        end: Any = coordination.end
        end_all: Any = coordination.end_all

        def guarded(one: Participant, *, committed: bool) -> None:
            self._reach("within the decision")
            end(one, committed=committed)
            self._reach("after the decision")

        def guarded_all(ones: list[Participant], *, committed: bool) -> list[Any]:
            """End the first one of several before the others."""
            errors = end_all(ones[:1], committed=committed)
            if len(ones) > 1:
                self._reach("between two markers")
            return [*errors, *end_all(ones[1:], committed=committed)]

        coordination.end = guarded  # type: ignore[method-assign]
        coordination.end_all = guarded_all  # type: ignore[method-assign, assignment]

    def _reach(self, point: str) -> None:
        if point == self._point:
            raise KilledError(point)


@pytest.mark.parametrize("point", POINTS)
def test_the_next_driver_writes_a_batch_once(node: Cluster, tmp_path: Path, point: str) -> None:
    """Every record is read once, and the group's decision is on the batch."""
    name = point.translate({ord(" "): "-", ord("'"): None})
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic(name, partitions=TASKS)
    options = write_options(
        {"kafka.bootstrap.servers": node.bootstrap, "topic": name, "kafka.group.id": f"g-{name}"}
    )
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "query"}))
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n")
    with pytest.raises(KilledError):
        Driver(options, str(tmp_path), point, "first").run()
    Driver(options, str(tmp_path), "", "second").run()
    assert committed(node.bootstrap, name) == list(range(TASKS))
    with open_cluster(options.config) as cluster:
        decided = Coordination(cluster).committed(f"g-{name}")
        assert Coordination(cluster).open_transactions(f"g-{name}-task-") == []
    assert {json.loads(one.metadata)["batch"] for one in decided.values()} == {0}
