"""Groups with members: what both tools show of them, and what both refuse to do to them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Consumer
from tests.conformance.tool_pairs import Call, Said, our_tool, run_story
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.tool_pairs import Place, ToolJvm

pytestmark = pytest.mark.conformance

TOPIC, GROUP = "members-topic", "members-group"

ON_THE_GROUP = (
    "--describe",
    "--describe --verbose",
    "--describe --offsets --verbose",
    "--describe --members",
    "--describe --members --verbose",
    "--describe --state",
    "--describe --state --verbose",
    "--delete",
    f"--delete-offsets --topic {TOPIC}",
    f"--reset-offsets --topic {TOPIC} --to-earliest --dry-run",
    f"--reset-offsets --topic {TOPIC} --to-earliest --execute",
    "--reset-offsets --all-topics --to-latest --export --dry-run",
)
CALLS = (
    *(Call(f"consumer-groups {arguments} --group {GROUP}") for arguments in ON_THE_GROUP),
    Call("groups --list"),
    Call("consumer-groups --list --state stable --type"),
    Call(f"configs --describe --group {GROUP}"),
)


def consume(bootstrap: str, joined: Event, stop: Event, **settings: Any) -> None:
    """Run a member that has committed once until it is stopped."""
    with Consumer(
        bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False, **settings
    ) as consumer:
        consumer.subscribe([TOPIC])
        while not stop.is_set():
            consumer.poll(0.05)
            if consumer.assignment and not joined.is_set():
                consumer.commit(dict.fromkeys(consumer.assignment, 0))
                joined.set()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "settings",
    [{}, {"group_instance_id": "inst"}, {"group_protocol": "consumer", "client_rack": "r"}],
    ids=["dynamic", "static", "consumer"],
)
def test_groups_with_members(
    settings: dict[str, str], places: list[Place], tool_jvm: ToolJvm, tmp_path: Path
) -> None:
    """A group that is read now is shown alike, and kept from harm alike."""
    for place in places:
        with Admin(bootstrap_servers=place.bootstrap) as admin:
            admin.create_topic(TOPIC, 3, if_not_exists=True)
        joined, stop = Event(), Event()
        with ThreadPoolExecutor(1) as pool:
            member = pool.submit(
                consume, place.bootstrap, joined, stop, client_id="reader", **settings
            )
            try:
                assert joined.wait(60), "the member did not get its partitions in time"
                answers = _answers(place, tool_jvm, tmp_path)
            finally:
                stop.set()
            member.result(WAIT_S)
        for call, java, ours in answers:
            assert ours == java, f"{place.name}: {call.text}"


def _answers(place: Place, jvm: ToolJvm, directory: Path) -> list[tuple[Call, Said, Said]]:
    java = run_story(CALLS, place, directory, run=jvm.run, mark="jjjj")
    ours = run_story(CALLS, place, directory, run=our_tool, mark="oooo")
    return list(zip(CALLS, java, ours, strict=True))
