"""`ottla streams-application-reset` against a scripted cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ottla.cli.commands import streams_application_reset as module
from ottla.cli.main import main
from tests.cli.commands.test_consumer_groups import P0, P1, FakeAdmin

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.errors import KafkaError

INTERNAL = ["idle-counts-changelog", "idle-words-repartition"]


class _Topic(NamedTuple):
    name: str
    is_internal: bool = False


class ResetAdmin(FakeAdmin):
    """A cluster with an application `idle`, which has two internal topics."""

    def list_topics(self) -> list[_Topic]:
        """List the application's topics and others."""
        return [*map(_Topic, ("orders", *INTERNAL, "other-x-changelog")), _Topic("__x", True)]

    def delete_topics(self, names: list[str]) -> dict[str, KafkaError | None]:
        """Record deleted topics."""
        self.requested.append(("topics", names))
        return dict.fromkeys(names)

    def remove_group_members(self, group: str) -> dict[str, KafkaError | None]:
        """Record removed members."""
        self.requested.append(("members", group))
        return {}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ResetAdmin:
    """Replace the admin client by a scripted cluster."""
    fake = ResetAdmin()
    monkeypatch.setattr(module, "open_admin", lambda *_, **options: fake.opened(**options))
    return fake


def run(
    capsys: pytest.CaptureFixture[str], *arguments: str, application: str = "idle"
) -> tuple[int, str]:
    """Run the tool for an application; return its status and output."""
    status: Any = 0
    try:
        main(["streams-application-reset", "--application-id", application, *arguments])
    except SystemExit as ended:
        status = ended.code or 0
    printed = capsys.readouterr()
    return status, printed.out + printed.err


def test_a_reset_sets_offsets_and_deletes_internal_topics(
    admin: ResetAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the first record by default; the output is Kafka's."""
    assert run(capsys, "--input-topics", "orders") == (
        0,
        (
            "Reset-offsets for input topics [orders]\n"
            "Following input topics offsets will be reset to (for consumer group idle)\n"
            "Topic: orders Partition: 0 Offset: 2\n"
            "Topic: orders Partition: 1 Offset: 2\n"
            "Done.\n"
            f"Deleting inferred internal topics [{', '.join(INTERNAL)}]\n"
            "Done.\n"
        ),
    )
    assert admin.requested == [("idle", {P0: 2, P1: 2}), ("topics", INTERNAL)]


def test_a_dry_run_changes_nothing(admin: ResetAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """It only prints."""
    _, text = run(capsys, "--input-topics", "orders", "--to-latest", "--dry-run")
    assert text.startswith("----Dry run displays the actions")
    assert "Partition: 1 Offset: 10" in text
    assert admin.requested == []


@pytest.mark.parametrize(
    ("flags", "offsets"),
    [
        ("--to-offset 5", (5, 5)),
        ("--to-offset 99", (10, 10)),
        ("--to-offset 0", (2, 2)),
        ("--shift-by -1", (3, 9)),
        ("--to-datetime 2026-01-01T00:00:00.000", (5, 10)),
        ("--by-duration PT1H", (5, 10)),
        ("--to-earliest", (2, 2)),
    ],
)
def test_targets(
    admin: ResetAdmin, capsys: pytest.CaptureFixture[str], flags: str, offsets: tuple[int, int]
) -> None:
    """Within the offsets that exist; partition 1 has no committed offset and none by time."""
    run(capsys, "--input-topics", "orders", *flags.split())
    assert admin.requested[0] == ("idle", dict(zip((P0, P1), offsets, strict=True)))


def test_a_duration_beyond_64_bits(admin: ResetAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused with Java's text, before a request is made."""
    status, said = run(capsys, "--input-topics", "orders", "--by-duration", "P999999999999D")
    assert status == 1
    assert "Text cannot be parsed to a Duration: overflow" in said
    assert admin.requested == []


def test_offsets_from_a_file(
    admin: ResetAdmin, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Lines of topic, partition and offset; another form is an error."""
    plan = tmp_path / "plan.csv"
    plan.write_text("orders,0,4\norders,1,6\n")
    run(capsys, "--input-topics", "orders", "--from-file", str(plan))
    assert admin.requested[0] == ("idle", {P0: 4, P1: 6})
    plan.write_text("orders,0\n")
    status, text = run(capsys, "--input-topics", "orders", "--from-file", str(plan))
    assert status == 1
    assert "not following the format `TOPIC,PARTITION,OFFSET`" in text


def test_members_are_removed_only_by_force(
    admin: ResetAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    """A running application is not reset."""
    status, text = run(capsys, application="busy")
    assert status == 1
    assert "Consumer group 'busy' is still active and has following members: [me-1]" in text
    run(capsys, "--force", application="busy")
    assert admin.requested == [("members", "busy")]


def test_unknown_topics(admin: ResetAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """They are skipped, and the status says so; internal topics must be the application's."""
    status, text = run(capsys, "--input-topics", "nothing", "--intermediate-topics", "orders")
    assert status == 1
    assert "Following input topics are not found, skipping them\nTopic: nothing\n" in text
    assert admin.requested[0] == ("idle", {P0: 10, P1: 10})
    status, text = run(capsys, "--internal-topics", "orders")
    assert status == 1
    assert "Invalid topic specified in the --internal-topics option" in text


@pytest.mark.usefixtures("admin")
def test_two_targets_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1 with Kafka's text."""
    status, text = run(capsys, "--to-latest", "--to-offset", "1")
    assert status == 1
    assert 'Option "[to-offset]" can\'t be used with option "[to-latest]"' in text
