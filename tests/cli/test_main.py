"""The `ottla` command: list of commands, version, misspelt names."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from ottla import __version__
from ottla.cli.main import COMMANDS
from tests.cli.running import run


def test_the_version_names_the_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    """`ottla --version` prints the Kafka version of the protocol."""
    status, out, _ = run(capsys, "--version")
    expected = f"Ottla {__version__}, Apache Kafka protocol 4.3 (metadata.version 4.3-IV0)\n"
    assert (status, out) == (0, expected)


def test_help_lists_the_commands_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Every installed command has a line, and there are examples."""
    status, out, _ = run(capsys, "--help")
    assert status == 0
    for name, command in COMMANDS.items():
        assert f"\n  {name} " in out
        assert find_spec(command.module) is not None
    assert "ottla topics --bootstrap-server localhost:9092 --create" in out


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("topcs", "topics"),
        ("topic", "topics"),
        ("consumer-group", "consumer-groups"),
        ("console-consume", "console-consumer"),
        ("server-strat", "server-start"),
        ("consoleproducer", "console-producer"),
    ],
)
def test_a_misspelt_command_is_answered(
    slip: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nearest command is proposed, and the call fails."""
    status, _, err = run(capsys, slip)
    assert status == 1
    assert f"No such command '{slip}'. Did you mean '{meant}'?" in err


def test_a_strange_command_is_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    """No command is proposed for a name without similar ones."""
    status, _, err = run(capsys, "xyzzy")
    assert status == 1
    assert err.strip().endswith("No such command 'xyzzy'.")


@pytest.mark.parametrize(
    ("command", "slip", "meant"),
    [
        ("topics", "--lst", "--list"),
        ("topics", "--bootstrap-servers", "--bootstrap-server"),
        ("topics", "--partition", "--partitions"),
        ("topics", "--replication-facter", "--replication-factor"),
        ("consumer-groups", "--to-earlist", "--to-earliest"),
        ("consumer-groups", "--reset-offset", "--reset-offsets"),
        ("console-consumer", "--from-begining", "--from-beginning"),
        ("console-consumer", "--max-message", "--max-messages"),
        ("console-producer", "--compresion-codec", "--compression-codec"),
    ],
)
def test_a_misspelt_flag_is_answered(
    command: str, slip: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nearest flag is proposed, and only that one."""
    status, _, err = run(capsys, command, slip)
    assert status == 1
    assert f"No such option '{slip}'. Did you mean '{meant}'?" in err


@pytest.mark.parametrize("tool", ["metadata-quorum", "features"])
def test_some_tools_know_no_version(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka's refuse the flag as well."""
    status, _, err = run(capsys, tool, "--version")
    assert status == 1
    assert "unrecognized arguments: '--version'" in err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--foo", "unrecognized arguments: '--foo'\n"),
        ("list --qqq bar", "unrecognized arguments: '--qqq'\n"),
        ("-x list", "unrecognized arguments: '-x'\n"),
        ("list bar", "unrecognized arguments: 'bar'\n"),
        ("list --duration-filter", "argument --duration-filter: expected one argument\n"),
        ("list --duration-filtre 1", "'--duration-filtre' Did you mean '--duration-filter'?"),
    ],
)
def test_unknown_flags_of_argparse4j_tools(
    arguments: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are refused in that library's words, which Kafka's tools with subcommands print."""
    status, _, err = run(capsys, "transactions", *arguments.split())
    assert status == 1
    assert error in err


@pytest.mark.parametrize("name", ["kafka-topics.sh", "kafka-topics", "topics"])
def test_kafkas_own_names_work(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The script's name is accepted for the tool."""
    status, out, _ = run(capsys, name, "--help")
    assert status == 0
    assert "Create, list, describe, alter or delete topics." in out


def test_a_script_may_have_another_name(capsys: pytest.CaptureFixture[str]) -> None:
    """kafka-e2e-latency.sh is end-to-end-latency."""
    status, out, _ = run(capsys, "kafka-e2e-latency.sh", "--help")
    assert status == 0
    assert "Send records one by one" in out


@pytest.mark.parametrize("name", sorted({*COMMANDS} - {"demo"}))  # demo has no options
def test_every_command_explains_itself_with_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """--help of each installed command ends with examples."""
    status, out, _ = run(capsys, name, "--help")
    assert status == 0
    assert f"ottla {name}" in out.partition("\n")[2]


def test_streams_that_are_closed_are_empty_ones() -> None:
    """After `<&- >&-` no socket gets the descriptor of a standard stream; uvloop would abort."""
    script = (
        "import os, sys; os.close(0); os.close(1); sys.stdin = sys.stdout = None\n"
        "from ottla.cli.main import main\n"
        "try: main(['--version'])\n"
        "except SystemExit: pass\n"
        "print('nowhere', sys.stdin.read(), file=sys.stdout)\n"
        "assert min(os.pipe()) > 2\n"
        "sys.stderr.write('good')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "good")
