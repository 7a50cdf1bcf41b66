"""Every advertised API in every version answers as real Kafka 4.3.0 does, good and bad requests.

Kafka: none. The cases are in the family modules, what may differ in `allowed.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.server.requests.api import served_apis
from tests.conformance.differential import allowed, run, wire_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.differential.case import Case
    from tests.conformance.differential.run import Outcome

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1200)]
CASES = run.all_cases()
# What has no error that a request could reach on one node without security: up to which version.
CANNOT_FAIL: dict[int | tuple[int, str], tuple[int, str]] = {
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "controller"): (0, "Kafka does not answer there"),
    (ApiKey.FETCH, "controller"): (6, "the error of the whole answer came with version 7"),
    ApiKey.API_VERSIONS: (2, "the client has no name to be refused before version 3"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (1, "a group that does not exist has no offsets"),
    ApiKey.FIND_COORDINATOR: (0, "the kind of coordinator came with version 1"),
    ApiKey.LIST_GROUPS: (5, "unknown states and types give an empty list"),
    ApiKey.LIST_TRANSACTIONS: (1, "the pattern came with version 2"),
    ApiKey.DESCRIBE_LOG_DIRS: (5, "unknown partitions are left out"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, "unknown partitions are left out"),
    ApiKey.LIST_CONFIG_RESOURCES: (0, "the kinds came with version 1"),
    ApiKey.CONTROLLER_REGISTRATION: (0, "only metadata versions before 3.7 refuse it"),
    ApiKey.DESCRIBE_CLUSTER: (0, "the kind of endpoint came with version 1"),
}
# What a node that is alone must refuse: its success would take the cluster apart.
CANNOT_SUCCEED = {
    ApiKey.DESCRIBE_ACLS,  # no authorizer
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.CREATE_DELEGATION_TOKEN,  # no login
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
    ApiKey.UNREGISTER_BROKER,
}
LISTENERS = ("broker", "controller")


class Played(NamedTuple):
    """What both nodes answered to everything."""

    kafka: dict[tuple[str, int], Outcome]
    ottla: dict[tuple[str, int], Outcome]
    wire: tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def played(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Ask both nodes all cases once, in the same order and from the same state."""
    with run.both_sides(kafka, tmp_path_factory.mktemp("differential")) as sides:
        theirs, ours = run.on_both(sides, lambda side: run.play(side, CASES))
        wire = run.on_both(
            sides,
            lambda side: {case.name: wire_cases.play(side, case) for case in wire_cases.CASES},
        )
        yield Played(theirs, ours, wire)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_the_answers_are_the_same(played: Played, case: Case) -> None:
    """In every version, less the allowed differences; and Kafka's has the errors it is about."""
    mine = {key: outcome for key, outcome in played.kafka.items() if key[0] == case.label}
    found = run.differences(mine, played.ottla)
    assert not found, "\n".join(map(str, found[:20]))
    codes = frozenset().union(*(outcome.codes for outcome in mine.values()))
    assert codes == case.errors, f"Kafka answers {sorted(codes)}"


@pytest.mark.parametrize("case", wire_cases.CASES, ids=lambda case: case.name)
def test_odd_frames_have_the_same_end(played: Played, case: wire_cases.WireCase) -> None:
    """Answered, left waiting or disconnected, on both nodes alike."""
    theirs, ours = (outcomes[case.name] for outcomes in played.wire)
    assert ours == theirs
    assert (theirs if isinstance(theirs, str) else None) == case.expected


@pytest.mark.parametrize("listener", LISTENERS)
def test_every_advertised_version_has_a_case(listener: str) -> None:
    """One that is valid and, but for APIs that cannot fail, one that reaches an error."""
    missing = []
    for key, api in served_apis(listener).items():
        mine = [case for case in CASES if case.key == key and case.listener == listener]
        for version in range(api.lowest, api.highest + 1):
            here = [case for case in mine if version in case.versions()]
            is_valid = any(case.name.startswith("valid") for case in here)
            if not is_valid and key not in CANNOT_SUCCEED:
                missing.append(f"{ApiKey(key).name} v{version} valid")
            fails = any(case.errors for case in here)
            safe = CANNOT_FAIL.get((key, listener)) or CANNOT_FAIL.get(key, (-1, ""))
            if not fails and version > safe[0]:
                missing.append(f"{ApiKey(key).name} v{version} error")
    assert not missing, missing


def test_every_allowed_difference_is_needed(played: Played) -> None:
    """The list has no entry without a difference."""
    run.differences(played.kafka, played.ottla)
    needless = [entry.label for entry in allowed.ALLOWED if entry not in allowed.used]
    assert not needless


def test_labels_are_unique() -> None:
    """No case hides another."""
    labels = [case.label for case in CASES]
    assert len(labels) == len(set(labels))
