"""`ottla metadata-shell`: browse the cluster's metadata in a snapshot or log as files.

Kafka: bin/kafka-metadata-shell.sh, org.apache.kafka.shell.{MetadataShell,
InteractiveShell}, which uses JLine; here GNU readline edits lines.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from ottla.cli.dump.batches import read_batches
from ottla.cli.output.failures import fail
from ottla.cli.shell.arguments import COMMANDS, parse_call
from ottla.cli.shell.commands import LeaveShell, ShellState, run
from ottla.cli.shell.image_tree import Provenance, ShellDirectory, ShellError, path_parts, root_of
from ottla.errors import OttlaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.framing import decode_record
from ottla.metadata.loader import MetadataLoader
from ottla.server.system.files import RealDirectory
from ottla.storage.layout import LOCK_FILE
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.cli.shell.image_tree import Node
    from ottla.metadata.image.image import MetadataImage

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
_EMPTY = Provenance(OffsetAndEpoch(-1, -1), -1)
PROMPT: Final = ">> "
_PATH_COMMANDS: Final = ("cat", "find", "ls", "tree")


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


@contextmanager
def log_dir_locked(path: Path) -> Iterator[None]:
    """Hold the lock of the log directory that contains a file, when it has one.

    ShellError while a node uses the directory.
    """
    log_dir = path.absolute().parent.parent
    if not (log_dir / LOCK_FILE).exists():
        yield
        return
    try:
        lock = RealDirectory(str(log_dir)).lock(LOCK_FILE)
    except BlockingIOError as error:
        raise ShellError(
            f"Unable to lock {log_dir}. Please ensure that no broker or controller process is "
            "using this directory before proceeding."
        ) from error
    try:
        yield
    finally:
        lock.release()


def read_metadata(path: Path, warn: Callable[[str], object]) -> tuple[MetadataImage, Provenance]:
    """Read a file into an image; warn(text) reports records that cannot be applied.

    Raises OSError, CorruptMessage; ShellError for a file without a batch.
    """
    loader = MetadataLoader()
    provenance = _EMPTY
    is_empty = True
    with path.open("rb") as file:
        end = file.seek(0, 2)
        for batch in read_batches(file, 0, end, str(path)):
            is_empty = False
            if batch.is_control:
                continue
            at = OffsetAndEpoch(batch.last_offset, batch.leader_epoch)
            # one by one: earlier records may be in a snapshot only
            for record in batch.records():
                try:
                    loader.load_batch([decode_record(record.value)], at, MetadataDelta())
                except OttlaError as error:
                    warn(f"the record at offset {record.offset} was not applied: {error}")
            if not loader.in_transaction:
                provenance = Provenance(at, batch.max_timestamp)
    if is_empty:
        raise ShellError(
            f"{path} has no complete batch: it is neither a snapshot nor a metadata log"
        )
    return loader.image, provenance


def converse(state: ShellState) -> None:
    """Read and run commands until `exit` or the end of the input.

    Raises ShellError for an error that ends the shell.
    """
    click.echo("[ Kafka Metadata Shell ]")
    _edit_lines(state)
    while True:
        try:
            line = input(PROMPT)
        except EOFError:
            return
        except KeyboardInterrupt:
            click.echo("^C")
            continue
        if line.strip() and line.strip() != (state.history or [""])[-1]:
            state.history.append(line.strip())
        if sys.stdout.isatty():
            state.width = shutil.get_terminal_size().columns
        try:
            _run_line(line, state)
        except LeaveShell:
            return
        except KeyboardInterrupt:  # in a long listing
            click.echo("^C")


def _run_line(line: str, state: ShellState) -> None:
    try:
        call = parse_call(split_words(line), interactive=True)
    except ShellError as error:
        click.echo(str(error))
        return
    for shown in () if call is None else run(call, state):
        click.echo(shown)


def split_words(line: str) -> list[str]:
    """Split a line at blanks; quotes around a word and backslashes keep blanks in it."""
    words: list[str] = []
    word, quote, is_word_quoted, is_escaped = "", "", False, False
    for character in line:
        if not is_escaped and character == "\\":
            is_escaped = True
            continue
        if not is_escaped and not quote and character in "\"'":
            quote, is_word_quoted = character, not word
            word += "" if is_word_quoted else character
        elif not is_escaped and quote == character:
            word += "" if is_word_quoted else character
            quote = ""
        elif not is_escaped and not quote and character.isspace():
            words += [word] if word else []
            word = ""
        else:
            word += character
        is_escaped = False
    return [*words, word] if word else words


# ---------------------------------------------------------------- completion


def _edit_lines(state: ShellState) -> None:
    """Complete words with the tab key where the platform has readline."""
    try:
        import readline
    except ImportError:  # a Python without it: lines are read without editing
        return
    found: list[str] = []

    def complete(_text: str, number: int) -> str | None:
        if number == 0:
            found[:] = completions(readline.get_line_buffer()[: readline.get_endidx()], state)
        return found[number] if number < len(found) else None

    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


def completions(line: str, state: ShellState) -> list[str]:
    """Return the completions of the last word of a line; directories end in a slash."""
    words = line.split(" ")
    command, last = words[0], words[-1]
    if len(words) == 1 or (command == "man" and len(words) == 2):
        return [f"{name} " for name in COMMANDS if name.startswith(last)]
    if command in _PATH_COMMANDS or (command == "cd" and len(words) == 2):
        return list(_completed_paths(last, state))
    return []


def _completed_paths(prefix: str, state: ShellState) -> Iterator[str]:
    parent, slash, start = prefix.rpartition("/")
    node: Node | None = state.root
    for part in path_parts(parent + slash, state.working_directory):
        node = node.child(part) if isinstance(node, ShellDirectory) else None
    if not isinstance(node, ShellDirectory):
        return
    for name in node.names:
        if name.startswith(start):
            is_directory = isinstance(node.child(name), ShellDirectory)
            yield f"{parent}{slash}{name}{'/' if is_directory else ' '}"
