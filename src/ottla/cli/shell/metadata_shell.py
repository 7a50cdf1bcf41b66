"""`ottla metadata-shell`: browse the cluster's metadata in a snapshot or log as files.

Kafka: bin/kafka-metadata-shell.sh, org.apache.kafka.shell.MetadataShell.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Final, NoReturn

import click

from ottla.cli.options.failures import fail
from ottla.cli.shell.arguments import parse_call
from ottla.cli.shell.commands import ShellState, run
from ottla.cli.shell.image_tree import root_of
from ottla.cli.shell.interactive import converse
from ottla.cli.shell.metadata_file import log_dir_locked, read_metadata
from ottla.cli.shell.nodes import ShellError
from ottla.errors import OttlaError

USAGE: Final = """usage: kafka-metadata-shell [-h] --snapshot SNAPSHOT
                            [command [command ...]]
"""
HELP: Final = (
    USAGE
    + """
The Apache Kafka metadata shell

positional arguments:
  command                The command to run.

optional arguments:
  -h, --help             show this help message and exit
  --snapshot SNAPSHOT, -s SNAPSHOT
                         The metadata snapshot file to read.
"""
)
EXAMPLES: Final = """
Examples:
  ottla metadata-shell --snapshot 00000000000000000090-0000000001.checkpoint
  ottla metadata-shell --snapshot 00000000000000000000.log ls /image
  ottla metadata-shell -s 00000000000000000000.log cat '/image/topics/byName/orders/*'
"""
_FLAGS: Final = ("--help", "--snapshot", "-h", "-s")


class ShellCommand(click.Command):
    """A command with the help and errors of Kafka's tool."""

    def get_help(self, _ctx: click.Context) -> str:
        """Return Kafka's help and our examples."""
        return HELP + EXAMPLES

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read --snapshot and the command's words, before or after it."""
        snapshot: str | None = None
        words: list[str] = []
        rest = iter(args)
        for word in rest:
            flag, equals, value = _flag_of(word)
            if word == "--":
                words += rest
            elif flag == "--help":
                click.echo(self.get_help(ctx).rstrip())
                ctx.exit()
            elif flag == "--snapshot":
                given = value if equals else next(rest, None)
                if given is None or (not equals and given.startswith("-")):
                    _refuse("argument --snapshot/-s: expected one argument")
                snapshot = given
            elif word.startswith("-") and word != "-":
                _refuse(f"unrecognized arguments: '{word}'{_proposal(word)}")
            else:
                words.append(word)
        if snapshot is None:
            _refuse("argument --snapshot/-s is required")
        ctx.params = {"snapshot": snapshot, "words": words}
        return []


def _flag_of(word: str) -> tuple[str, str, str]:
    """Return the flag that a word names or abbreviates, and its value."""
    if word.startswith("-s"):
        return "--snapshot", word[2:], word[2:].removeprefix("=")
    name, equals, value = word.partition("=")
    if word.startswith("--") and len(name) > 2:
        for flag in ("--snapshot", "--help"):
            if flag.startswith(name):
                return flag, equals, value
    return "--help" if word == "-h" else "", equals, value


def _proposal(word: str) -> str:
    near = get_close_matches(word, _FLAGS, n=1)
    return f"\n\nDid you mean:\n\t{near[0]}" if near else ""


def _refuse(message: str) -> NoReturn:
    fail(f"{USAGE}kafka-metadata-shell: error: {message}")


@click.command(
    "metadata-shell",
    cls=ShellCommand,
    params=[
        click.Option(["--snapshot", "-s"], type=click.Path()),
        click.Argument(["words"], metavar="command", nargs=-1),
    ],
)
def metadata_shell(snapshot: str, words: list[str]) -> None:
    """Browse the cluster's metadata in a snapshot or log as files."""
    path = Path(snapshot)
    try:
        with log_dir_locked(path):
            if words:
                _run_once(path, words)
            else:
                click.echo("Loading...")
                state = _load(path)
                click.echo("Starting...")
                converse(state)
    except ShellError as error:
        fail(f"Unexpected error: {error}")
    except BrokenPipeError:
        raise  # the reader of the output has ended
    except OSError as error:
        fail(f"Unexpected error: {_disk_text(error, path)}")
    except OttlaError as error:
        fail(f"Unexpected error: {error}")


def _run_once(path: Path, words: list[str]) -> None:
    state = _load(path)
    try:
        call = parse_call(words, interactive=False)
    except ShellError as error:
        click.echo(str(error))
        return
    for line in () if call is None else run(call, state):
        click.echo(line)


def _load(path: Path) -> ShellState:
    return ShellState(root_of(*read_metadata(path, _warn)))


def _warn(text: str) -> None:
    click.echo(f"WARN {text}", err=True)


def _disk_text(error: OSError, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"java.nio.file.NoSuchFileException: {path}"
    return str(error)
