"""`ottla console-producer` with a scripted producer."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.main import main
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from typing import Self


class FakeProducer:
    """Accepts records of up to three bytes; no broker is reachable for the value `away`."""

    sent: list[bytes]

    def __init__(self, config: dict[str, Any]) -> None:
        type(self).sent = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def send(self, _topic: str, value: bytes, _key: bytes | None, **_more: Any) -> object:
        """Record the call."""
        if value == b"away":
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "cannot reach h:1")
        if len(value) > 3:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        self.sent.append(value)
        return self

    def result(self) -> None:
        """Return the acknowledgement."""

    def flush(self) -> None:
        """Do nothing."""


def run(
    text: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *more: str
) -> tuple[int, str, str]:
    """Run the tool with a standard input; return its status and what it printed."""
    monkeypatch.setattr("ottla.clients.blocking.Producer", FakeProducer)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    status: Any = 0
    try:
        main(["console-producer", "--bootstrap-server", "h:1", "--topic", "t", *more])
    except SystemExit as ended:
        status = ended.code or 0
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_a_record_that_is_refused_costs_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported with its size, and later lines are sent; with --sync they are not."""
    status, _, said = run(b"a\nlarge\nb\n", capsys, monkeypatch)
    assert (status, FakeProducer.sent) == (0, [b"a", b"b"])
    assert "Error when sending message to topic t with key: null, value: 5 bytes" in said
    status, _, said = run(b"a\nlarge\nb\n", capsys, monkeypatch, "--sync")
    assert (status, FakeProducer.sent) == (1, [b"a"])
    assert "RecordTooLargeException: too large" in said


def test_without_a_broker_nothing_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool ends when no broker can be reached."""
    status, _, said = run(b"a\naway\nb\n", capsys, monkeypatch)
    assert (status, FakeProducer.sent) == (1, [b"a"])
    assert "cannot reach h:1" in said


def test_lines_end_as_in_java(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines end at a line feed, a carriage return, or both; invalid UTF-8 is sent unchanged."""
    run(b"a\rb\r\nc\n\nd\xff", capsys, monkeypatch)
    assert FakeProducer.sent == [b"a", b"b", b"c", b"", b"d\xff"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--producer-property", "--command-property"),
        ("--property", "--reader-property"),
        ("--producer.config", "--command-config"),
    ],
)
def test_old_and_new_names_together(
    old: str, new: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both together are refused, since one would be ignored."""
    status, _, said = run(b"", capsys, monkeypatch, old, "acks=1", new, "acks=all")
    assert status == 1
    assert f"Options {new} and {old} cannot be specified together." in said


def test_an_old_name_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--max-partition-memory-bytes still works, with a warning."""
    status, said, _ = run(b"", capsys, monkeypatch, "--max-partition-memory-bytes", "9")
    assert status == 0
    assert "Warning: --max-partition-memory-bytes is deprecated" in said
