"""Brokers that do not lead, and standby controllers, answer as those of real Kafka 4.3.0.

Kafka: none. Without OTTLA_TEST_DIFFERENTIAL=all some cases of each API are sent to a follower, or
to a standby controller, in their newest version; with it all are sent to leaders, followers and
others in every version.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.differential import allowed_elsewhere, run, three_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.differential.case import Case
    from tests.conformance.differential.three_nodes import Answers

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
HAS_ALL = os.environ.get("OTTLA_TEST_DIFFERENTIAL") == "all"
ROLES = three_nodes.ROLES if HAS_ALL else three_nodes.ROLES[1:2]
_MAX_CASES = 3


def _cases() -> list[Case]:
    """Return all cases, or the first ones of each API and listener."""
    taken = Counter[tuple[int, str]]()
    found = []
    for case in three_nodes.cluster_cases():
        taken[case.key, case.listener] += 1
        if HAS_ALL or taken[case.key, case.listener] <= _MAX_CASES:
            found.append(case)
    return found


@pytest.fixture(scope="module")
def played(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Answers]]:
    """Ask both clusters all cases once, in the same order and from the same state."""
    directory = tmp_path_factory.mktemp("three")
    with three_nodes.both_clusters(kafka, directory) as sides:
        yield three_nodes.played(sides, _cases(), ROLES, only_newest=not HAS_ALL)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_nodes_of_a_cluster_answer_the_same(played: list[Answers], role: three_nodes.Role) -> None:
    """In every version, less the allowed differences."""
    kafka, ottla = (answers[role.name] for answers in played)
    found = [
        f"{one.label} {one}"
        for one in run.differences(kafka, ottla)
        if not allowed_elsewhere.is_allowed(role.name, one)
    ]
    assert not found, "\n".join(found[:20])
    assert len(kafka) >= len(_cases()) / 2


def test_every_allowed_difference_is_needed(played: list[Answers]) -> None:
    """Of all cases; the list of clusters has no entry without a difference."""
    kafka, ottla = played
    for role in kafka:
        for one in run.differences(kafka[role], ottla[role]):
            allowed_elsewhere.is_allowed(role, one)
    needless = [one.label for one in allowed_elsewhere.ALLOWED if one not in allowed_elsewhere.used]
    assert not (needless and HAS_ALL)
