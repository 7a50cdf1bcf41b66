"""A whole node with native clients on virtual time: kills and power cuts at any file operation.

Run more with OTTLA_SIMULATION_SEEDS=500; replay one with `Workload(seed).run()`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.errors import KafkaError
from ottla.testing.simulation import SimulatedNode
from tests.simulation.nodes.compaction import CompactionWorkload
from tests.simulation.nodes.retention import RetentionWorkload
from tests.simulation.nodes.workload import Workload
from tests.soaks import with_soaks

if TYPE_CHECKING:
    from ottla.clients.producer.producer import AsyncProducer

SEEDS = int(os.environ.get("OTTLA_SIMULATION_SEEDS", "8"))


@pytest.mark.parametrize("block", with_soaks(range(4)))
def test_a_node_survives_kills_and_power_cuts_at_any_file_operation(block: int) -> None:
    """Every seed keeps every promise: records, offsets, commits, topics, settings."""
    crashes = sum(Workload(seed).run().crash_count for seed in range(block, SEEDS, 4))
    assert crashes > SEEDS // 4


def digests() -> str:
    """Return the digests of two runs with crashes."""
    run = Workload(3, steps=25, rot_probability=0.2, rot_at_start_probability=0.5).run()
    expiring = RetentionWorkload(3, steps=10).run()
    return run.simulation.trace.digest() + expiring.simulation.trace.digest()


@pytest.mark.soak
def test_the_same_seed_has_the_same_events_whatever_the_hash_seed() -> None:
    """Another process with another PYTHONHASHSEED agrees on every event of a run with crashes."""
    own_seed = os.environ.get("PYTHONHASHSEED")
    there = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import digests; print(digests())"],
        env={**os.environ, "PYTHONHASHSEED": "2" if own_seed == "1" else "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert there == digests()
    assert len(there) == 64


@pytest.mark.soak
def test_rotten_bits_and_slow_reads_break_no_promise() -> None:
    """A damaged partition serves right records or an error, and the others all of theirs."""
    rotten = sum(
        Workload(seed, rot_probability=0.1, steps=40).run().rot_count for seed in range(1, 7)
    )
    assert rotten > 5


@pytest.mark.soak
def test_rotten_bits_in_the_nodes_own_files_are_refused_or_harm_no_other() -> None:
    """Metadata log, snapshots, consumer offsets: the start is refused, or the others are served."""
    counts: Counter[str] = Counter()
    for seed in range(3, 8):
        run = Workload(seed, rot_at_start_probability=0.7, crash_probability=0.15, steps=30).run()
        counts.update(run.node_rot.counts)
    assert min(counts[kind] for kind in ("metadata log, refused", "snapshot, started", "offsets"))


@pytest.mark.soak
def test_retention_removes_what_is_due_and_nothing_else() -> None:
    """By time and by size, over crashes; rotten timestamps harm their own partition only."""
    runs = [RetentionWorkload(seed).run() for seed in range(3)]
    assert sum(run.rot_count for run in runs) > 3
    assert sum(run.expired_count for run in runs) > 100


@pytest.mark.soak
def test_compaction_keeps_the_last_record_of_each_key() -> None:
    """Over stops, kills and power cuts; tombstones stay for their time, and old values go."""
    runs = [CompactionWorkload(seed).run() for seed in range(4)]
    assert sum(run.removed_count for run in runs) > 300


def test_a_rotten_bit_is_never_served_as_a_record() -> None:
    """A flipped bit of a log ends in an error for its readers; the other topic is not affected."""
    simulation = SimulatedNode(3)

    async def read(topic: str, count: int) -> list[bytes | None]:
        values: list[bytes | None] = []
        async with simulation.consumer(
            topic, group_id=f"g-{topic}", auto_offset_reset="earliest"
        ) as consumer:
            while len(values) < count:
                values += [record.value for record in await consumer.poll(1.0)]
        return values

    async def fill(producer: AsyncProducer, topic: str) -> None:
        for number in range(20):
            await producer.send_and_wait(topic, b"%d" % number * 50)

    async def work() -> None:
        await simulation.start()
        async with simulation.producer() as producer:
            await fill(producer, "rotten")
            await fill(producer, "good")
        log = "rotten-0/00000000000000000000.log"
        simulation.disk.flip_bit(log, 1000, 3)
        with pytest.raises(KafkaError, match="Record is corrupt"):
            await read("rotten", 20)
        expected = [b"%d" % number * 50 for number in range(20)]
        assert await read("good", 20) == expected
        await simulation.stop()

    simulation.run(work())


def test_a_clean_stop_and_start_keeps_everything() -> None:
    """What was produced is there after a restart, without recovery."""
    simulation = SimulatedNode(4)

    async def work() -> None:
        await simulation.start()
        async with simulation.producer() as producer:
            found = await producer.send_and_wait("t", b"kept")
        assert found.offset == 0
        await simulation.stop()
        await simulation.start()
        async with simulation.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("t")
            records: list[bytes | None] = []
            while not records:
                records = [record.value for record in await consumer.poll(1.0)]
        assert records == [b"kept"]
        await simulation.stop()

    simulation.run(work())
