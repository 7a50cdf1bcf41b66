"""`ottla streams-groups` against a scripted cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.groups import tool as module
from ottla.cli.main import main
from ottla.clients.admin.groups import GroupListing
from ottla.clients.admin.streams_groups import (
    InternalTopicDescription,
    StreamsGroupDescription,
    StreamsMemberDescription,
    StreamsTasks,
    SubtopologyDescription,
)
from ottla.errors import ErrorCode, KafkaError
from tests.cli.commands.test_consumer_groups import FakeAdmin

if TYPE_CHECKING:
    from collections.abc import Iterable

TASKS = StreamsTasks({"0": (0, 1)}, {"0": (2,)}, {})
MEMBER = StreamsMemberDescription(
    "m-1", 3, None, None, "me", "/10.0.0.1", 0, "p-1", None, {}, TASKS, TASKS, False
)


def _topic(name: str) -> InternalTopicDescription:
    return InternalTopicDescription(name, 2, 0, {})


def _group(name: str, state: str, *members: StreamsMemberDescription) -> StreamsGroupDescription:
    changelogs = {key: _topic(key) for key in (f"{name}-counts-changelog", "other")}
    topology = (SubtopologyDescription("0", ("orders",), (), {}, changelogs),)
    return StreamsGroupDescription(name, state, 5, 4, 0, topology, members, 1)


GROUPS = {"busy": _group("busy", "Stable", MEMBER), "idle": _group("idle", "Empty")}
UNKNOWN = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")


class StreamsAdmin(FakeAdmin):
    """A cluster with a busy and an idle streams group."""

    def list_groups(self, *, types: tuple[str, ...], states: tuple[str, ...] = ()) -> list[Any]:
        """List both, or those in a state."""
        assert types == ("streams",)
        return [
            GroupListing(one.group_id, "streams", one.state, "streams")
            for one in GROUPS.values()
            if not states or one.state in states
        ]

    def describe_streams_groups(self, names: Iterable[str]) -> dict[str, Any]:
        """Describe existing groups."""
        return {name: GROUPS.get(name, UNKNOWN) for name in names}

    def delete_groups(self, names: list[str]) -> dict[str, KafkaError | None]:
        """Record deleted groups."""
        self.requested.append(("delete", names))
        return dict.fromkeys(names)

    def delete_topics(self, names: list[str]) -> dict[str, KafkaError | None]:
        """Record deleted topics."""
        self.requested.append(("topics", names))
        return dict.fromkeys(names)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> StreamsAdmin:
    """Replace the admin client by a scripted cluster."""
    fake = StreamsAdmin()
    monkeypatch.setattr(module, "open_admin", lambda *_, **options: fake.opened(**options))
    return fake


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the tool; return its status and output, errors included."""
    status: Any = 0
    try:
        main(["streams-groups", "--bootstrap-server", "h:1", *arguments])
    except SystemExit as ended:
        status = ended.code or 0
    printed = capsys.readouterr()
    return status, printed.out + printed.err


@pytest.mark.usefixtures("admin")
def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """Names alone, or with states, all or some."""
    assert run(capsys, "--list") == (0, "busy\nidle\n")
    assert run(capsys, "--list", "--state", "empty") == (
        0,
        "GROUP           STATE\nidle            Empty\n",
    )
    assert "Invalid state list 'x'" in run(capsys, "--list", "--state", "x")[1]


@pytest.mark.usefixtures("admin")
def test_describe(capsys: pytest.CaptureFixture[str]) -> None:
    """Lag of the active tasks' partitions, members with their tasks, states with epochs."""
    assert run(capsys, "--describe", "--group", "busy") == (
        0,
        (
            "GROUP           TOPIC           PARTITION  OFFSET-LAG\n"
            "busy            orders          0          6\n"
            "busy            orders          1          8\n"
        ),
    )
    _, text = run(capsys, "--describe", "--group", "busy", "--verbose")
    assert text.splitlines()[1].split() == ["busy", "orders", "0", "4", "3", "10", "6"]
    _, text = run(capsys, "--describe", "--group", "busy", "--members")
    assert text.splitlines()[1] == (
        "busy            m-1             p-1             me              "
        "ACTIVE: 0:[0,1]; STANDBY: 0:[2]; "
    )
    _, text = run(capsys, "--describe", "--group", "busy", "--members", "--verbose")
    assert text.splitlines()[1].endswith("TARGET-ACTIVE: 0:[0,1]; TARGET-STANDBY: 0:[2]; ")
    _, text = run(capsys, "--describe", "--group", "idle", "--state", "--verbose")
    assert "Error: Streams group 'idle' has no active members." in text
    assert text.splitlines()[-1].split() == ["idle", "h:9092", "(1)", "Empty", "5", "4", "0"]
    status, text = run(capsys, "--describe", "--group", "none")
    assert status == 1
    assert "Executing streams group command failed due to" in text


def test_delete(admin: StreamsAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """Groups with members stay; internal topics go with their group if they have its name."""
    status, text = run(capsys, "--delete", "--all-groups", "--delete-all-internal-topics")
    assert status == 0
    assert admin.requested == [("delete", ["idle"]), ("topics", ["idle-counts-changelog"])]
    assert "Streams group 'busy' is not EMPTY." in text
    assert "These streams groups were deleted successfully: 'idle'." in text
    assert "The internal topic 'other' is not inferred as internal" in text
    assert "Deletion of associated internal topics of the streams groups ('idle') was" in text


def test_reset_offsets(admin: StreamsAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the input topics that have offsets; only with --execute, only of inactive groups."""
    flags = ["--reset-offsets", "--group", "idle", "--all-input-topics", "--to-earliest"]
    _, text = run(capsys, *flags, "--dry-run")
    assert text.splitlines()[-1].split() == ["idle", "orders", "0", "2"]
    assert admin.requested == []
    run(capsys, *flags, "--execute", "--delete-internal-topic", "one")
    assert [what for what, _ in admin.requested] == ["idle", "topics"]
    _, text = run(capsys, *flags[:2], "busy", *flags[3:], "--execute")
    assert "Assignments can only be reset if the group 'busy' is inactive" in text


def test_delete_offsets(admin: StreamsAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """Of all input topics with offsets."""
    _, text = run(capsys, "--delete-offsets", "--group", "idle", "--all-input-topics")
    assert "Request succeeded for deleting offsets from group idle." in text
    assert admin.requested[0][0] == "idle"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", "exactly one action"),
        ("--list --describe --all-groups", "exactly one action"),
        ("--describe", "[describe] takes one of these options: [all-groups], [group]"),
        ("--describe --group g --members --offsets", "takes at most one of these options"),
        ("--describe --group g --state x", "does not take a value for [state]"),
        ("--list --members", "Option(s) [members] are unavailable"),
        ("--delete --group g --input-topic t", "does not support topic-specific offset deletion"),
        ("--delete-offsets --group g", "takes the [group] and one of these options"),
        ("--reset-offsets --group g", "takes the option: [execute] or [dry-run]"),
        ("--reset-offsets --execute", "takes one of these options: [all-groups], [group]"),
        ("--reset-offsets --group g --execute --to-latest", "One of the reset scopes"),
        ("--describe --group g --execute", "Only Option [reset-offsets] accepts"),
        ("--list --delete-all-internal-topics", "takes one of these options: [delete]"),
        ("--delete --group g --delete-internal-topic t", "takes [reset-offsets] when [execute]"),
        ("--describe --group g --all-groups", 'Option "[group]" can\'t be used with'),
    ],
)
@pytest.mark.usefixtures("admin")
def test_usage_errors(arguments: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka's texts, and status 1."""
    status, printed = run(capsys, *arguments.split())
    assert status == 1
    assert text in printed
