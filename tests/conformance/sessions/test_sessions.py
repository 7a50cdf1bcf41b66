"""Random sessions: hundreds of requests in sequence get the same answers as on real Kafka 4.3.0.

Kafka: none. `scripts/random_sessions.py` runs more seeds, and replays one. All of these are played
on three nodes, too, with OTTLA_TEST_DIFFERENTIAL=all.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.sessions.generate import STEP_COUNT, generate
from tests.conformance.sessions.run import Runner, runner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]
SEEDS = (1, 2, 3, 4, 5, 5000, 5001)
CLUSTER_SEEDS = SEEDS if os.environ.get("OTTLA_TEST_DIFFERENTIAL") == "all" else SEEDS[:1]


@pytest.fixture(scope="module")
def sessions(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """Run both nodes for all seeds."""
    with runner(kafka, tmp_path_factory.mktemp("sessions")) as running:
        yield running


@pytest.mark.parametrize("seed", SEEDS)
def test_a_session_is_answered_as_by_kafka(sessions: Runner, seed: int) -> None:
    """Every answer, and all records and offsets at the end, less the allowed differences."""
    found = sessions.check(seed)
    assert found is None, found


def test_three_nodes_answer_a_session_as_those_of_kafka(kafka: Any, tmp_path: Path) -> None:
    """Node 1 leads all partitions; a part of the requests goes to the other nodes."""
    with runner(kafka, tmp_path, nodes=3) as sessions:
        found = [sessions.check(seed) for seed in CLUSTER_SEEDS]
    assert found == [None] * len(CLUSTER_SEEDS), found


def test_a_seed_always_makes_the_same_session() -> None:
    """Steps are numbered, and equal in every run."""
    first, second = generate(1), generate(1)
    assert first == second
    assert [step.number for step in first] == list(range(STEP_COUNT))
