"""`ottla consumer-groups` against a scripted cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.groups import tool as module
from ottla.cli.groups.offset_reset import parse_duration, parse_moment
from ottla.cli.groups.usage import GroupCommandError
from ottla.cli.main import main
from ottla.clients.admin.cluster import ClusterDescription
from ottla.clients.admin.groups import GroupDescription, GroupListing, MemberDescription
from ottla.clients.admin.topics import PartitionDescription, TopicDescription
from ottla.clients.offsets import OffsetAndMetadata, OffsetAndTimestamp
from ottla.errors import ErrorCode, KafkaError
from ottla.types import Node, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Self

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
ENDS = {-1: 10, -2: 2}
MEMBER = MemberDescription("me-1", None, "me", "/10.0.0.1", (P0, P1))
GROUPS = {
    "busy": GroupDescription("busy", "Stable", "Classic", "consumer", "range", 1, (MEMBER,)),
    "idle": GroupDescription("idle", "Empty", "Classic", "consumer", "", 1, ()),
}
UNKNOWN = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")


class FakeAdmin:
    """A cluster with a busy and an idle group; records requested changes."""

    def __init__(self) -> None:
        self.requested: list[Any] = []
        self.options: dict[str, Any] = {}

    def opened(self, **options: Any) -> Self:
        """Record the arguments of the admin client."""
        self.options = options
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def list_groups(self, *, states: tuple[str, ...], types: tuple[str, ...]) -> list[Any]:
        """List groups, one of another protocol among them."""
        found = [
            GroupListing(one.group_id, one.protocol_type, one.state, one.type)
            for one in GROUPS.values()
            if not states or one.state in states
        ]
        return [*found, GroupListing("connect", "connect", "Stable", "Classic")] if types else []

    def describe_groups(self, names: Iterable[str]) -> dict[str, Any]:
        """Describe existing groups."""
        return {name: GROUPS.get(name, UNKNOWN) for name in names}

    def describe_topics(self, names: Iterable[str]) -> dict[str, Any]:
        """Return two partitions for every topic except `none`."""
        parts = tuple(PartitionDescription(i, Node(1, "h", 1), 0, (1,), (1,), ()) for i in (0, 1))
        missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return {
            name: missing if name == "none" else TopicDescription(name, Uuid(), False, parts, 0)
            for name in names
        }

    def describe_cluster(self) -> ClusterDescription:
        """Return one broker."""
        return ClusterDescription("c", None, (Node(1, "h", 9092),), frozenset(), 0)

    def list_group_offsets(
        self, _group: str, _partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return one committed partition."""
        return {P0: OffsetAndMetadata(4, "", 3)}

    def list_offsets(
        self, requested: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Start at 2, end at 10; partition 1 has no offset by time."""
        return {
            one: OffsetAndTimestamp(ENDS.get(when, 5 if one == P0 else -1), -1, 0)
            for one, when in requested.items()
        }

    def alter_group_offsets(self, group: str, plan: dict[TopicPartition, int]) -> dict[Any, None]:
        """Record the new offsets."""
        self.requested.append((group, plan))
        return dict.fromkeys(plan)

    def delete_group_offsets(self, group: str, partitions: list[Any]) -> dict[Any, None]:
        """Record the deleted offsets."""
        self.requested.append((group, partitions))
        return dict.fromkeys(partitions)

    def delete_groups(self, names: list[str]) -> dict[str, KafkaError | None]:
        """Delete existing groups."""
        return {name: None if name in GROUPS else UNKNOWN for name in names}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """Replace the admin client by a scripted cluster."""
    fake = FakeAdmin()
    monkeypatch.setattr(module, "open_admin", lambda *_, **options: fake.opened(**options))
    return fake


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the tool; return its status and standard output."""
    status: Any = 0
    try:
        main(["consumer-groups", "--bootstrap-server", "h:1", *arguments])
    except SystemExit as ended:
        status = ended.code or 0
    return status, capsys.readouterr().out


@pytest.mark.usefixtures("admin")
def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """Only groups of consumers are listed, with state or type on request."""
    assert run(capsys, "--list") == (0, "busy\nidle\n")
    _, text = run(capsys, "--list", "--state", "--type")
    assert text.splitlines()[1].split() == ["busy", "Classic", "Stable"]
    _, text = run(capsys, "--list", "--state", "empty")
    assert [line.split()[0] for line in text.splitlines()] == ["GROUP", "idle"]


@pytest.mark.usefixtures("admin")
def test_describe_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    """A line a partition: committed, end, lag and owner, dashes for what is not known."""
    status, text = run(capsys, "--describe", "--group", "busy")
    rows = [line.split() for line in text.splitlines() if line]
    assert status == 0
    assert rows[0][:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert rows[1] == ["busy", "orders", "0", "4", "10", "6", "me-1", "/10.0.0.1", "me"]
    assert rows[2] == ["busy", "orders", "1", "-", "10", "-", "me-1", "/10.0.0.1", "me"]
    _, text = run(capsys, "--describe", "--group", "busy", "--verbose")
    assert "LEADER-EPOCH" in text


@pytest.mark.usefixtures("admin")
def test_describe_members_and_state(capsys: pytest.CaptureFixture[str]) -> None:
    """Members with their assignment; the state with its coordinator."""
    _, text = run(capsys, "--describe", "--group", "busy", "--members", "--verbose")
    assert text.splitlines()[2].split()[-4:] == ["-", "orders:0,1", "-", "-"]
    _, text = run(capsys, "--describe", "--group", "busy", "--state")
    assert text.splitlines()[2].split() == ["busy", "h:9092", "(1)", "range", "Stable", "1"]
    status, text = run(capsys, "--describe", "--group", "none")
    assert status == 0  # as in Kafka's tool
    assert "GroupIdNotFoundException: Group none not found." in text


@pytest.mark.parametrize(
    ("flags", "offsets"),
    [
        (("--to-earliest",), {P0: 2, P1: 2}),
        (("--to-latest",), {P0: 10, P1: 10}),
        (("--to-offset", "7"), {P0: 7, P1: 7}),
        (("--to-offset", "0"), {P0: 2, P1: 2}),
        (("--to-offset", "99"), {P0: 10, P1: 10}),
        (("--to-current",), {P0: 4, P1: 10}),
        (("--to-datetime", "2026-01-01T00:00:00.000"), {P0: 5, P1: 10}),
        (("--by-duration", "P1DT2H"), {P0: 5, P1: 10}),
    ],
    ids=str,
)
def test_reset(
    flags: tuple[str, ...],
    offsets: dict[TopicPartition, int],
    admin: FakeAdmin,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All targets of a reset; only --execute changes offsets."""
    call = ("--reset-offsets", "--group", "idle", "--topic", "orders", *flags)
    run(capsys, *call, "--dry-run")
    assert admin.requested == []
    status, text = run(capsys, *call, "--execute")
    assert status == 0
    assert admin.requested == [("idle", offsets)]
    rows = [line.split() for line in text.splitlines() if line.startswith("idle")]
    assert rows == [["idle", "orders", str(p.partition), str(o)] for p, o in offsets.items()]


def test_shift(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """A shift starts from the committed offset and stays within the log."""
    call = ("--reset-offsets", "--group", "idle", "--execute", "--shift-by")
    run(capsys, *call, "-3", "--topic", "orders:0")
    run(capsys, *call, "2", "--all-topics")
    run(capsys, *call, "0", "--all-topics")
    assert admin.requested == [("idle", {P0: 2}), ("idle", {P0: 6}), ("idle", {P0: 4})]
    assert run(capsys, *call, "2", "--topic", "orders")[0] == 1


def test_a_plan_can_be_written_and_read(
    admin: FakeAdmin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--export prints what --from-file reads."""
    call = ("--reset-offsets", "--group", "idle")
    _, text = run(capsys, *call, "--topic", "orders", "--to-earliest", "--export")
    assert text == "orders,0,2\norders,1,2\n\n"
    file = tmp_path / "plan.csv"
    file.write_text(text)
    run(capsys, *call, "--from-file", str(file), "--execute")
    assert admin.requested == [("idle", {P0: 2, P1: 2})]


def test_a_plan_of_several_groups_names_them(
    admin: FakeAdmin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single --group omits its name; a group without a plan does not stop the others."""
    call = ("--reset-offsets", "--topic", "orders:0", "--to-earliest", "--dry-run", "--export")
    _, text = run(capsys, *call, "--group", "idle", "--group", "idle")
    assert text == "idle,orders,0,2\n\n"
    file = tmp_path / "plan.csv"
    file.write_text(text)
    reset = ("--reset-offsets", "--from-file", str(file), "--execute")
    _, text = run(capsys, *reset, "--group", "none", "--group", "idle")
    assert "\nError: No reset plan for group none found\n" in text
    assert admin.requested == [("idle", {P0: 2})]


def test_cells_of_a_plan_are_quoted_as_jackson_does(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    """Long names and those with blanks or commas stand between quotes."""
    assert admin.requested == []
    call = ("--reset-offsets", "--to-earliest", "--dry-run", "--export", "--group", "a b")
    long = "a-topic-with-more-than-24-letters"
    _, text = run(capsys, *call, "--group", "c", "--topic", f"{long}:0")
    assert text == f'"a b","{long}",0,2\nc,"{long}",0,2\n\n'


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("2023-11-14T22:13:20.001", 1_700_000_000_001),
        ("2023-11-14T22:13:20.001Z", 1_700_000_000_001),
        ("2023-11-14T23:43:20.001+01:30", 1_700_000_000_001),
        ("2023-11-14T21:13:20.999-01", 1_700_000_000_999),
        ("2023-11-14T22:13:20.7", 1_700_000_000_007),
        ("1969-12-31T23:59:59.999", -1),
    ],
)
def test_times_are_read_as_java_does(text: str, moment_ms: int) -> None:
    """No millisecond is lost to floating point; the digits of the fraction are milliseconds."""
    assert parse_moment(text) == moment_ms


@pytest.mark.parametrize(
    "text", ["2023-11-14", "2023-11-14T22:13:20", "2023-02-30T00:00:00.000", "x", "Tx"]
)
def test_no_times(text: str) -> None:
    """A time without milliseconds or of an invalid day is refused, as in Kafka."""
    with pytest.raises(GroupCommandError, match=r"java\.text\.ParseException: "):
        parse_moment(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("P1DT2H", 93_600_000),
        ("PT1.5S", 1_500),
        ("pt-1h", -3_600_000),
        ("-PT1H30M", -5_400_000),
        ("+P1D", 86_400_000),
        ("PT-1,5S", -1_500),
    ],
)
def test_durations_are_read_as_java_does(text: str, milliseconds: int) -> None:
    """Each number may have its sign; a comma is a point."""
    assert parse_duration(text) == milliseconds * 1_000_000


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "P1H", "1D", "P 1D"])
def test_no_durations(text: str) -> None:
    """A T must be followed by a time."""
    with pytest.raises(GroupCommandError, match="Text cannot be parsed to a Duration"):
        parse_duration(text)


@pytest.mark.usefixtures("admin")
def test_a_duration_beyond_all_time(capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused instead of raising Python's OverflowError."""
    call = ("--reset-offsets", "--group", "idle", "--topic", "orders", "--dry-run")
    _, text = run(capsys, *call, "--by-duration", "P999999999999D")
    assert "Text cannot be parsed to a Duration: overflow" in text


def test_the_time_limit_is_used(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """--timeout bounds each call to the cluster."""
    run(capsys, "--list", "--timeout", "1234")
    assert admin.options == {"default_api_timeout_ms": 1234}


def test_a_busy_group_is_not_reset(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """Offsets of a group with members are not changed; the tool reports the state."""
    call = ("--reset-offsets", "--group", "busy", "--topic", "orders", "--to-latest", "--execute")
    _, text = run(capsys, *call)
    assert "can only be reset if the group 'busy' is inactive, but the current state is" in text
    assert admin.requested == []


def test_delete(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """Groups and offsets are deleted; failures are named."""
    status, text = run(capsys, "--delete", "--group", "idle")
    assert (status, text) == (0, "Deletion of requested consumer groups ('idle') was successful.\n")
    status, text = run(capsys, "--delete", "--group", "idle", "--group", "none")
    assert status == 0
    assert "* Group 'none' could not be deleted due to:" in text
    assert "These consumer groups were deleted successfully: 'idle'" in text
    status, text = run(capsys, "--delete-offsets", "--group", "idle", "--topic", "orders:1")
    assert (status, admin.requested) == (0, [("idle", [P1])])
    status, text = run(capsys, "--delete-offsets", "--group", "idle", "--topic", "none")
    assert status == 0
    assert "none            -          Error:" in text


def test_regular_expressions_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """Validation needs no cluster."""
    _, text = run(capsys, "--validate-regex", "a.*")
    assert text == "The regular expression `a.*` is valid.\n"
    _, text = run(capsys, "--validate-regex", "a(")
    assert text.startswith("The regular expression `a(` is invalid: ")
