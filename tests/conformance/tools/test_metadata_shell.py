"""kafka-metadata-shell.sh and `ottla metadata-shell` on the same files: the same bytes.

The files: a snapshot with every kind of node, and the logs and snapshots of real nodes.
"""

from __future__ import annotations

import subprocess
import sys
from shutil import copytree
from typing import TYPE_CHECKING

import pytest

from ottla import Admin
from ottla.cli.shell.metadata_shell import EXAMPLES
from ottla.protocol.records.metadata import ConfigRecord
from tests.cli.metadata_snapshot import quota, write_snapshot
from tests.conformance.clients.node_process import running_node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.kafka import Kafka, RealKafka

pytestmark = pytest.mark.conformance

TOOL = "org.apache.kafka.shell.MetadataShell"
METADATA = "__cluster_metadata-0"

WALK = """\
tree /image
find
ls
pwd
ls /image/* /nosuch
cd image/topics
pwd
ls
ls byName byId ../provenance ../../local
cat byName/*/*
cat ../provenance nosuch ..
tree byName/orders/{name,0} byName/order? nosuch
find byName/* nosuch /image/{acls,scram}
cd byName/orders/name
cd nosuch
cd ../..
cd ../../..
ls
cat image/features/finalized_nosuch image/features/finalized_metadata.version
cat "image/configs/BROKER:1/*" 'image/configs/TOPIC:orders/retention.ms'
tree image/clientQuotas image/cluster image/configs image/scram image/delegationToken
ls image/topics/byName/\\[x\\] image/topics/byName/[x] {a,b image/*top?cs
cat image/clientQuotas/*/*
"""
COMMANDS = """\
help
man cat
man tree
man history
man pwd
man ma
man
c
h
l
ex
bogus
CAT x
cat
tree
ls -h x --y
cd -h
tree -h
history -h
man -h
pwd -h
exit --help
cd a b c
pwd x
-x
ls --x
ls -- -x
ls -1
ls -
ls "a b" \\x a"b"c
history -1
history x
history 2147483648
history 2
history
cd
ls 'unclosed

BLANKS
ls "" /local
exit 1
exit
ls
"""


class Answer:
    """Both streams and the exit status of a call."""

    def __init__(self, command: list[str], stdin: str, cwd: Path) -> None:
        done = subprocess.run(
            command,
            input=stdin.encode(),
            capture_output=True,
            timeout=100,
            check=False,
            cwd=cwd,
            stdin=None,
        )
        self.out = done.stdout.decode()
        self.status = done.returncode
        lines = done.stderr.decode().splitlines()
        first = next((n for n, line in enumerate(lines) if line.startswith("Unexpected")), None)
        if first is not None:
            lines = lines[: first + 1]  # Kafka's stack trace follows
        self.err = [line for line in lines if not line.startswith("SLF4J") and "jline" not in line]
        self.err = [line for line in self.err if not line.startswith("WARNING: Unable to create a")]


def both(kafka: Kafka, directory: Path, *arguments: str, stdin: str = "") -> Answer:
    """Call both tools and compare; return the answer.

    Kafka's tool sometimes answers before it has loaded the file; then it is called again.
    """
    java = kafka.command(TOOL, *arguments)
    java.insert(1, "-Dfile.encoding=UTF-8")
    ottla = [sys.executable, "-X", "utf8", "-m", "ottla.cli.main", "metadata-shell", *arguments]
    ours = Answer(ottla, stdin, directory)
    theirs = Answer(java, stdin, directory)
    for _ in range(6):
        if (theirs.out, theirs.err) != (ours.out, ours.err):
            theirs = Answer(java, stdin, directory)
    assert ours.out == theirs.out
    assert ours.err == theirs.err
    assert ours.status == theirs.status
    return ours


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a snapshot with every kind of node."""
    return write_snapshot(tmp_path_factory.mktemp("shell"))


def test_settings_that_do_not_exist_are_left_out(kafka: Kafka, tmp_path: Path) -> None:
    """Those of topics, groups, client metrics and loggers; brokers may have any."""
    names = ("no.such", "message.format.version", "retention.ms", "ssl.keystore.password")
    more = [
        ConfigRecord(resource_type=kind, resource_name=resource, name=name, value="v")
        for kind, resource in ((2, "u"), (4, ""), (4, "5"), (8, "5"), (16, "u"), (32, "u"))
        for name in (*names, "interval.ms", "consumer.session.timeout.ms")
    ]
    path = str(write_snapshot(tmp_path, *more))
    shown = both(kafka, tmp_path, "-s", path, "tree", "/image/configs").out
    assert "TOPIC:u" in shown
    assert "BROKER_LOGGER" not in shown


def test_a_walk_through_every_node(kafka: Kafka, snapshot: Path) -> None:
    """The whole tree and each command on it, with relative paths, patterns and errors."""
    said = both(kafka, snapshot.parent, "-s", snapshot.name, stdin=WALK)
    assert "leaderRecoveryState=RECOVERING" in said.out
    assert "clientId(x)_user(a\\(b\\)\\\\c)" in said.out


def test_commands_and_their_errors(kafka: Kafka, snapshot: Path) -> None:
    """Help, manual, history, abbreviations and refusals have Kafka's texts."""
    typed = COMMANDS.replace("BLANKS", "   ")
    said = both(kafka, snapshot.parent, "-s", snapshot.name, stdin=typed)
    assert said.out.endswith(">> unrecognized arguments: '1'\n>> ")


@pytest.mark.parametrize(
    "command",
    [
        "tree /image",
        "cat /image/provenance /nosuch /image",
        "cat",
        "l",
        "ls --x",
    ],
)
def test_one_command_on_the_command_line(command: str, kafka: Kafka, snapshot: Path) -> None:
    """A command may stand behind the file; a failed one does not change the status."""
    both(kafka, snapshot.parent, "--snapshot", snapshot.name, *command.split())


@pytest.mark.parametrize(
    "arguments",
    ["", "--bogus", "-s", "--snapshit x", "-s nosuch ls"],
)
def test_refused_arguments(arguments: str, kafka: Kafka, tmp_path: Path) -> None:
    """Usage and error of invalid flags and of a missing file."""
    assert both(kafka, tmp_path, *arguments.split()).status == 1


def test_help(kafka: Kafka) -> None:
    """--help is Kafka's text and examples; Kafka's tool ends with status 1."""
    theirs = kafka.run(TOOL, "--help", check=False).stdout
    ours = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "metadata-shell", "-h"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ours.stdout == theirs + EXAMPLES


def test_the_quota_of_a_default_entity_has_no_name(kafka: Kafka, tmp_path: Path) -> None:
    """Kafka's tree shows it without contents, and `find` ends at it."""
    path = write_snapshot(tmp_path, quota("consumer_byte_rate", 5.0, user=None))
    both(kafka, path.parent, "-s", path.name, "tree", "/image/clientQuotas")
    both(kafka, path.parent, "-s", path.name, "find", "/image/clientQuotas")
    both(kafka, path.parent, "-s", path.name, "cat", "/image/clientQuotas/*/*")


def test_files_of_real_kafka(kafka: Kafka, real_kafka: RealKafka, tmp_path: Path) -> None:
    """The log and every snapshot of a running Kafka."""
    with Admin(bootstrap_servers=real_kafka.bootstrap) as admin:
        admin.create_topic("shell", partitions=3, configs={"retention.ms": "5000"})
    copytree(real_kafka.log_dir / METADATA, tmp_path / METADATA)
    _same_files(kafka, tmp_path / METADATA)


def test_files_of_an_ottla_node(kafka: Kafka, tmp_path: Path) -> None:
    """The log and every snapshot of a stopped Ottla node."""
    with running_node(tmp_path) as node, Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("shell", partitions=3, configs={"retention.ms": "5000"})
    _same_files(kafka, tmp_path / "data" / METADATA)


def _same_files(kafka: Kafka, directory: Path) -> None:
    files = [path for path in directory.iterdir() if path.suffix in {".log", ".checkpoint"}]
    files.remove(directory / f"{0:020d}-{0:010d}.checkpoint")  # no metadata: Kafka's tool waits
    assert files
    for path in files:
        both(kafka, directory, "-s", path.name, "tree", "/image")
