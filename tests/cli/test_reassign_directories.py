"""`ottla reassign-partitions` with `log_dirs`: what it starts, cancels and prints."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.cli.output.failures import ToolError
from ottla.cli.reassign.actions import (
    TimedOut,
    moves_under_way,
    set_directory_throttle,
    start_moves,
    state_lines,
)
from ottla.clients.admin.cluster import ReplicaPlace
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

A, B = (TopicPartition("a", 0), 1), (TopicPartition("b", 3), 2)
MISSING = KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE)


class Brokers:
    """Answers moves with the next of the outcomes given, and says where replicas are."""

    def __init__(self, *outcomes: dict[Any, KafkaError | None], places: Any = None) -> None:
        self.outcomes = list(outcomes)
        self.requests: list[dict[Any, str]] = []
        self.places = places or {}
        self.changes: list[Any] = []

    def alter_replica_log_dirs(self, moves: dict[Any, str]) -> dict[Any, KafkaError | None]:
        self.requests.append(dict(moves))
        return self.outcomes.pop(0)

    def describe_replica_log_dirs(self, replicas: Any) -> dict[Any, ReplicaPlace]:
        return {one: self.places[one] for one in replicas}

    def alter_configs(self, changes: dict[Any, Any]) -> dict[Any, None]:
        self.changes.append(changes)
        return dict.fromkeys(changes)


def test_a_replica_that_is_not_there_yet_is_asked_for_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One that a reassignment only just adds; each line ends with a space, as Kafka's."""
    brokers = Brokers({A: MISSING, B: None}, {A: None})
    start_moves(cast("Any", brokers), {A: "/x", B: "/y"}, 5000)
    assert brokers.requests == [{A: "/x", B: "/y"}, {A: "/x"}]
    assert capsys.readouterr().out.splitlines() == [
        "Successfully started moving log directory to /y for replica b-3 with broker 2 ",
        "Successfully started moving log directory to /x for replica a-0 with broker 1 ",
    ]


def test_a_replica_that_never_comes_and_one_that_is_refused() -> None:
    """--timeout ends the first wait; any other error ends the tool."""
    brokers = Brokers({A: MISSING, B: MISSING})
    with pytest.raises(TimedOut) as ended:
        start_moves(cast("Any", brokers), {A: "/x", B: "/y"}, 0)
    text = "Timed out before log directory moves could be started for: a-0-1,b-3-2"
    assert str(ended.value) == text
    refusing = Brokers({A: KafkaError(ErrorCode.LOG_DIR_NOT_FOUND)})
    with pytest.raises(ToolError, match="Failed to alter dir for a-0-1"):
        start_moves(cast("Any", refusing), {A: "/x"}, 0)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (
            ReplicaPlace(None, -1, None, -1),
            (
                "Partition a-0 is not found in any live log dir on broker 1. There is likely an "
                "offline log directory on the broker."
            ),
        ),
        (ReplicaPlace("/o", 0, "/x", 9), "Reassignment of replica a-0-1 is still in progress."),
        (
            ReplicaPlace("/o", 0, "/z", 9),
            "Partition a-0 on broker 1 is being moved to log dir /z instead of /x.",
        ),
        (
            ReplicaPlace("/o", 0, None, -1),
            "Partition a-0 on broker 1 is not being moved from log dir /o to /x.",
        ),
        (ReplicaPlace("/x", 0, None, -1), "Reassignment of replica a-0-1 completed successfully."),
    ],
)
def test_states_of_a_move(place: ReplicaPlace, text: str) -> None:
    """What --verify prints; --cancel takes those that have a future directory."""
    brokers = Brokers(places={A: place})
    assert state_lines(cast("Any", brokers), {A: "/x"}) == [text]
    moving = {A: "/o"} if place.future_path is not None else {}
    assert moves_under_way(cast("Any", brokers), {A: "/x"}) == moving


def test_the_throttle_of_directories(capsys: pytest.CaptureFixture[str]) -> None:
    """It is a setting of each broker that moves a replica."""
    brokers = Brokers()
    set_directory_throttle(cast("Any", brokers), {2, 1}, 700)
    (changes,) = brokers.changes
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert [(one.name, changes[one]) for one in changes] == [
        ("1", {name: "700"}),
        ("2", {name: "700"}),
    ]
    assert capsys.readouterr().out == "The replica-alter-dir throttle limit was set to 700 B/s\n"
