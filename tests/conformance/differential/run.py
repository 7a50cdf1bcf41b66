"""Runs all cases on both nodes from the same state, and reports where the answers differ.

Kafka: none. `python -m tests.conformance.differential.run [part of a label]` prints differences
while one works on them.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.requests.api import served_apis
from ottla.testing.cluster import Cluster
from tests.conformance.differential import (
    allowed,
    broker_cases,
    cluster_cases,
    config_cases,
    consumer_group_cases,
    group_cases,
    log_cases,
    produce_cases,
    quorum_cases,
    record_cases,
    security_cases,
    share_group_cases,
    streams_group_cases,
    topic_cases,
    transaction_cases,
)
from tests.conformance.differential.normalise import flat
from tests.conformance.differential.side import Side
from tests.conformance.kafka import find_kafka, running_kafka
from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conformance.differential.case import Case
    from tests.conformance.kafka import Kafka

FAMILIES = (
    produce_cases,
    record_cases,
    log_cases,
    topic_cases,
    config_cases,
    cluster_cases,
    group_cases,
    quorum_cases,
    broker_cases,
    transaction_cases,
    consumer_group_cases,
    security_cases,
    streams_group_cases,
    share_group_cases,
)
# Both nodes: no timer of these may fire while the cases run.
SETTINGS = {
    "log.retention.ms": "-1",
    "log.initial.task.delay.ms": "3600000",
    "log.message.timestamp.before.max.ms": "9223372036854775807",
    "group.min.session.timeout.ms": "100",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    "connections.max.idle.ms": "600000",
    "transaction.two.phase.commit.enable": "false",  # Kafka's defaults, not those of development
    "unstable.api.versions.enable": "false",
    "controller.quorum.append.linger.ms": "0",  # changes are waited for many times
    # one is there when snapshots are fetched
    "metadata.log.max.record.bytes.between.snapshots": "2000",
}


SLOW_S = 2.0


class Outcome(NamedTuple):
    """One answer, as plain data, and the error codes that it holds."""

    answer: Any
    codes: frozenset[int]


class Difference(NamedTuple):
    """A value that the two nodes do not share."""

    label: str
    version: int
    path: str
    kafka: Any
    ottla: Any

    def __str__(self) -> str:
        return f"v{self.version} {self.path}: Kafka {self.kafka!r}, Ottla {self.ottla!r}"


def all_cases() -> list[Case]:
    """Return the cases of all families, those of APIs which are not served yet left out."""
    served = {listener: served_apis(listener) for listener in ("broker", "controller")}
    return [
        case for family in FAMILIES for case in family.CASES if case.key in served[case.listener]
    ]


@contextmanager
def both_sides(
    kafka: Kafka, directory: Path, settings: dict[str, str] = SETTINGS
) -> Iterator[tuple[Side, Side]]:
    """Run real Kafka and Ottla with the same settings for as long as the block lasts."""
    (directory / "kafka").mkdir()
    with running_kafka(kafka, directory / "kafka", settings) as real:
        config = {key: value for key, value in real.properties.items() if key != "log.dirs"}
        theirs = {"broker": real.port, "controller": real.controller_port}
        ours = dict(zip(theirs, free_ports(2), strict=True))
        for listener, port in theirs.items():
            for key, value in config.items():
                config[key] = value.replace(f":{port}", f":{ours[listener]}")
        data_dir = directory / "ottla"
        data_dir.mkdir()
        with Cluster(config=config, data_dir=str(data_dir)):
            sides = (
                Side("Kafka", theirs, str(real.log_dir)),
                Side("Ottla", ours, str(data_dir)),
            )
            try:
                yield sides
            finally:
                for side in sides:
                    side.close()


def on_both(sides: tuple[Side, Side], work: Callable[[Side], Any]) -> tuple[Any, Any]:
    """Do the same on both nodes at the same time."""
    with ThreadPoolExecutor(2) as pool:
        kafka, ottla = pool.map(work, sides)
    return kafka, ottla


def play(side: Side, cases: list[Case]) -> dict[tuple[str, int], Outcome]:
    """Ask all cases in all their versions, in order."""
    return {
        (case.label, version): _ask(side, case, version)
        for case in cases
        for version in case.versions()
    }


def _ask(side: Side, case: Case, version: int) -> Outcome:
    began = time.monotonic()
    try:
        return _answered(side, case, version)
    finally:
        took = time.monotonic() - began
        if took > SLOW_S:
            print(f"{side.name}: {case.label} v{version} took {took:.1f} s", file=sys.stderr)


def _answered(side: Side, case: Case, version: int) -> Outcome:
    side.label = re.sub(r"[^a-z0-9]+", "-", f"{case.label} {version}")
    try:
        request = case.request(side, version)
        response = side.answer(request, version, listener=case.listener, silent=case.silent)
        answer = {"answer": side.normalise(response, version)}
        if case.after is not None:
            answer["after"] = case.after(side, version)
    except AssertionError as error:
        return Outcome({"failed": f"{side.name}: {error}"}, frozenset())
    allowed.sort(case, answer)
    return Outcome(answer, error_codes(answer))


def error_codes(answer: Any) -> frozenset[int]:
    """Return all error codes in an answer but 0."""
    return frozenset(
        value
        for path, value in flat(answer).items()
        if path.rpartition(".")[2] in ("error_code", "partition_error_code") and value
    )


def differences(
    kafka: dict[tuple[str, int], Outcome], ottla: dict[tuple[str, int], Outcome]
) -> list[Difference]:
    """Return where the answers are not the same, allowed ones left out."""
    found = []
    for (label, version), outcome in kafka.items():
        theirs, ours = flat(outcome.answer), flat(ottla[label, version].answer)
        for path in [*theirs, *(ours.keys() - theirs.keys())]:
            one = Difference(
                label, version, path, theirs.get(path, "<absent>"), ours.get(path, "<absent>")
            )
            if one.kafka != one.ottla and not allowed.is_allowed(one):
                found.append(one)
    return found


def main() -> int:
    """Print the differences of the cases whose label holds the argument."""
    requested = sys.argv[1] if len(sys.argv) > 1 else ""
    cases = [case for case in all_cases() if requested in case.label]
    with (
        tempfile.TemporaryDirectory() as directory,
        both_sides(find_kafka(), Path(directory)) as sides,
    ):
        kafka, ottla = on_both(sides, lambda side: play(side, cases))
    shown: set[tuple[str, str]] = set()
    for one in differences(kafka, ottla):
        path = re.sub(r"\[\d+\]", "[]", one.path)
        if (one.label, path) not in shown:
            shown.add((one.label, path))
            print(f"{one.label} {one}"[:600])
    for case in cases:
        codes = frozenset().union(*(kafka[case.label, v].codes for v in case.versions()))
        if codes != case.errors:
            print(f"{case.label}: Kafka answers {sorted(codes)}, not {sorted(case.errors)}")
    print(len(cases), "cases,", len(kafka), "questions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
