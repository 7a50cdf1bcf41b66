"""`ottla console-consumer` with a scripted consumer."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.commands.console_consumer import RecordJson
from ottla.cli.main import main
from ottla.clients.consumer.record_decoder import ConsumerRecord

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

VALUES = (b"\0\0\0\1", b"x", b"\0\0\0\2")


class FakeConsumer:
    """Returns three records and then none; a second empty poll fails."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self._left = [ConsumerRecord("t", 0, n, 0, None, one, ()) for n, one in enumerate(VALUES)]
        self._empty_polls = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def subscribe(self, _names: object = None, pattern: str | None = None) -> None:
        """Compile a pattern as the real one does."""
        re.compile(pattern or "")

    def assign(self, _partitions: object) -> None:
        """Do nothing."""

    def seek(self, _partition: object, _offset: int) -> None:
        """Do nothing."""

    def poll(self, _wait_s: float, limit: int | None) -> list[ConsumerRecord]:
        """Return up to `limit` records."""
        given, self._left = self._left[:limit], self._left[len(self._left[:limit]) :]
        if not given:
            self._empty_polls += 1
            if self._empty_polls > 1:
                raise KeyboardInterrupt
        return given


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, str, str]:
    """Run the tool; return its status and what it printed."""
    monkeypatch.setattr("ottla.clients.blocking.Consumer", FakeConsumer)
    status: Any = 0
    try:
        main(["console-consumer", "--bootstrap-server", "h:1", *arguments])
    except SystemExit as ended:
        status = ended.code or 0
    printed = capsys.readouterr()
    return status, printed.out, printed.err


NUMBERS = ("--topic", "t", "--value-deserializer", "a.IntegerDeserializer")


@pytest.mark.parametrize(
    ("flags", "ended", "count"),
    [
        (("--timeout-ms", "0"), 0, 0),
        (("--timeout-ms", "-1"), 130, 3),
        (("--timeout-ms", "-1", "--max-messages", "2"), 0, 2),
        (("--max-messages", "-1"), 130, 3),
        (("--max-messages", "-5"), 0, 0),
        (("--max-messages", "0"), 0, 0),
    ],
)
def test_when_it_ends(
    flags: tuple[str, ...],
    ended: int,
    count: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A negative timeout and a limit of -1 mean no limit; skipped records are counted."""
    status, _, said = run(capsys, monkeypatch, *NUMBERS, "--skip-message-on-error", *flags)
    assert (status, said.splitlines()[-1]) == (ended, f"Processed a total of {count} messages")


def test_a_record_that_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the tool, or is reported and skipped with --skip-message-on-error."""
    status, shown, said = run(capsys, monkeypatch, *NUMBERS)
    assert (status, shown) == (1, "1\n")
    assert said == "1 bytes cannot be deserialized\nProcessed a total of 2 messages\n"
    flags = ("--skip-message-on-error", "--max-messages", "3", "--enable-systest-events")
    status, shown, said = run(capsys, monkeypatch, *NUMBERS, *flags)
    assert (status, shown) == (0, "1\n2\nshutdown_complete\n")
    assert "skipping this message" in said


def test_a_record_as_json() -> None:
    """All of it; bytes that are no text as base64, numbers by the deserializer."""
    headers = (("h", b"\xff"), ("n", None))
    record = ConsumerRecord("t", 1, 7, 99, "kä".encode(), VALUES[2], headers)
    expected = {"topic": "t", "partition": 1, "offset": 7, "timestamp": 99, "key": "kä"}
    shown_headers = [{"key": "h", "value_base64": "/w=="}, {"key": "n", "value": None}]
    plain = json.loads(RecordJson("", "").format(record))
    assert plain == {**expected, "value": "\0\0\0\2", "headers": shown_headers}
    numbers = json.loads(RecordJson("", "IntegerDeserializer").format(record))
    assert numbers["value"] == "2"
    with pytest.raises(ValueError, match="4 bytes cannot be deserialized"):
        RecordJson("", "LongDeserializer").format(record)


def test_a_deserializer_flag_overrides_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A property overrides the flag, and the flag the file of --formatter-config."""
    path = tmp_path / "formatter.properties"
    path.write_text("value.deserializer=a.StringDeserializer\n")
    flags = (*NUMBERS, "--formatter-config", str(path), "--max-messages", "1")
    assert run(capsys, monkeypatch, *flags)[1] == "1\n"
    text = ("--formatter-property", "value.deserializer=a.StringDeserializer")
    assert run(capsys, monkeypatch, *flags, *text)[1] == "\0\0\0\1\n"


def test_json_is_one_line_for_each_record(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the flag --json, which excludes formatters."""
    status, shown, _ = run(capsys, monkeypatch, "--topic", "t", "--json", "--max-messages", "2")
    assert status == 0
    assert [json.loads(line)["offset"] for line in shown.splitlines()] == [0, 1]
    flags = ("--topic", "t", "--json", "--formatter-property", "print.key=true")
    _, _, said = run(capsys, monkeypatch, *flags)
    assert "--json excludes the options of formatters" in said


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            "--topic t --from-beginning --command-property auto.offset.reset=latest",
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest'",
        ),
        (
            "--topic t --group a --command-property group.id=b",
            "Detected group ids: 'a', 'b'",
        ),
        ("--topic t --partition 0 --offset 9223372036854775808", "or a non-negative long."),
        ("--include t(", "t( is an invalid regex"),
    ],
)
def test_calls_that_contradict_themselves(
    flags: str,
    problem: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Contradicting settings are refused; the message names both."""
    status, _, said = run(capsys, monkeypatch, *flags.split())
    assert status == 1
    assert problem in said


def test_settings_that_agree(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same group twice, and earliest with --from-beginning, are no contradiction."""
    flags = (
        "--topic t --group a --from-beginning --max-messages 1 --formatter LoggingMessageFormatter"
    )
    same = ("group.id=a", "auto.offset.reset=earliest")
    more = [word for one in same for word in ("--command-property", one)]
    status, shown, _ = run(capsys, monkeypatch, *flags.split(), *more)
    assert (status, shown) == (0, "\0\0\0\1\n")


def test_formatter_of_a_coordinators_topic(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--formatter names Kafka's class; records without a key are not a coordinator's."""
    flags = "--topic t --max-messages 3 --formatter org.apache.kafka.tools.consumer."
    status, shown, said = run(capsys, monkeypatch, *f"{flags}OffsetsMessageFormatter".split())
    assert (status, shown, said) == (0, "", "Processed a total of 3 messages\n")
