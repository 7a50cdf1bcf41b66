"""`ottla dev --tls` as a user runs it: each client line that it prints logs in."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.dev import issue, new_authority
from tests.cli.running import run
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Run the node; return the lines that it prints."""
    directory = tmp_path_factory.mktemp("dev")
    command = [sys.executable, "-m", "ottla", "dev", "--tls", "--port", "0"]
    command += ["--data-dir", str(directory / "node"), "--ready-file", str(directory / "ready")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    lines = []
    for line in running.stdout:
        lines.append(line.rstrip("\n"))
        if line.strip().startswith("ottla topics"):
            break
    assert lines, running.communicate()
    yield lines
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=WAIT_S)
    assert running.returncode == 0, errors


def connected(lines: list[str], name: str) -> Any:
    """Return the client that a printed line makes."""
    (line,) = [one.strip() for one in lines if one.startswith(f"  {name}.")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads files as of old
        return eval(line, {name: import_module(name)})


def test_each_printed_python_line_logs_in(printed: list[str]) -> None:
    """The native client, librdkafka's and kafka-python's, each with TLS and SCRAM."""
    assert sum(one.startswith("  ") and "Producer(" in one for one in printed) == 3
    with connected(printed, "ottla") as producer:
        assert producer.send("events", b"one").result(WAIT_S).offset == 0
    librdkafka = connected(printed, "confluent_kafka")
    reports: list[Any] = []
    librdkafka.produce("events", b"two", on_delivery=lambda *report: reports.append(report))
    assert librdkafka.flush(WAIT_S) == 0
    assert [(error, message.offset()) for error, message in reports] == [(None, 1)]
    python = connected(printed, "kafka")
    assert python.send("events", b"three").get(WAIT_S).offset == 2
    python.close()


def test_the_printed_tool_lists_topics(
    printed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the file that the Java line names, which only its owner reads."""
    (command,) = [one.split() for one in printed if one.startswith("  ottla topics")]
    status, _, errors = run(capsys, *command[1:])
    assert (status, errors) == (0, "")
    private = Path(command[command.index("--command-config") + 1]).parent
    modes = {one.name: one.stat().st_mode & 0o777 for one in private.iterdir() if one.is_file()}
    assert modes.pop("authority.pem") & 0o444
    assert set(modes.values()) == {0o600}, modes
    ready = json.loads((private.parent / "ready").read_text())
    assert ready["bootstrap"] == command[command.index("--bootstrap-server") + 1]


def test_a_certificate_names_its_hosts() -> None:
    """Names and addresses are told apart."""
    made = issue(new_authority("a"), "node", ("localhost", "::1"))
    assert "localhost" in str(made.certificate.extensions[0].value)
    assert "value=::1" in str(made.certificate.extensions[0].value)
