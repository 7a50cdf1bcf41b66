"""`storage format` and `info` for each kind of node, compared with kafka-storage: lines and files.

Times and random ids differ by nature and are masked.
"""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ottla.protocol.records.raft import VotersRecord
from ottla.raft.snapshot import decode_snapshot
from ottla.raft.voter_set import decode_control_message
from ottla.records.batches import iterate_batches
from ottla.types import Uuid
from tests.conformance.tool_pairs import Said, ToolJvm, our_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
CLUSTER = "CCCCCCCCCCCCCCCCCCCCCw"
CRC, TIMES = slice(17, 21), slice(27, 43)
BOTH = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs={d}/one,{d}/two
"""
CONTROLLER = """process.roles=controller
node.id=3
listeners=CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs={d}/one
"""
NO_HOST = CONTROLLER.replace("127.0.0.1:9093", ":9093")
TWO_LISTENERS = CONTROLLER.replace(
    "CONTROLLER://127.0.0.1:9093", "OTHER://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093"
).replace("names=CONTROLLER", "names=CONTROLLER,OTHER") + (
    "listener.security.protocol.map=OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
)
BROKER = """process.roles=broker
node.id=2
listeners=PLAINTEXT://127.0.0.1:9092
controller.listener.names=CONTROLLER
log.dirs={d}/one
"""
BOOTSTRAP = "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
STATIC = "controller.quorum.voters=1@127.0.0.1:9093,3@127.0.0.1:9095\n"
APART = BOOTSTRAP + "metadata.log.dir={d}/metadata\n"
ID_A, ID_B = "AAAAAAAAAAAAAAAAAAAAAw", "BBBBBBBBBBBBBBBBBBBBBw"
SEVERAL = f"1@127.0.0.1:9093:{ID_A},3@[::1]:9095:{ID_B}"


class Formatting(NamedTuple):
    """A node's configuration and the calls of the tool on it."""

    name: str
    config: str
    calls: Sequence[str]


FORMATTINGS = [
    Formatting("alone", BOTH + BOOTSTRAP, ["-s", "-s", "-s -g", "-N"]),
    Formatting("alone, metadata apart", BOTH + APART, ["-s"]),
    Formatting("alone, controller", CONTROLLER + BOOTSTRAP, ["--standalone"]),
    Formatting("alone, no host", NO_HOST + BOOTSTRAP, ["--standalone"]),
    Formatting("alone, two listeners", TWO_LISTENERS + BOOTSTRAP, ["--standalone"]),
    Formatting(
        "alone, advertised",
        CONTROLLER + BOOTSTRAP + "advertised.listeners=CONTROLLER://elsewhere:19093\n",
        ["--standalone"],
    ),
    Formatting("several voters", BOTH + BOOTSTRAP, [f"-I {SEVERAL}"]),
    Formatting("several voters, controller", CONTROLLER + BOOTSTRAP, [f"-I {SEVERAL}"]),
    Formatting("several voters, another node", BROKER + BOOTSTRAP, [f"-I {SEVERAL}"]),
    Formatting("joins", CONTROLLER + BOOTSTRAP, ["-N"]),
    Formatting("joins, both roles", BOTH + APART, ["--no-initial-controllers"]),
    Formatting("broker", BROKER + BOOTSTRAP, ["", "-N"]),
    Formatting("broker, joins", BROKER + BOOTSTRAP, ["-N"]),
    Formatting("broker alone", BROKER + BOOTSTRAP, ["-s"]),
    Formatting("static", BOTH + STATIC, ["", "", "-g"]),
    Formatting("static, joins", BOTH + STATIC, ["-N"]),
    Formatting("static, alone", BOTH + STATIC, ["-s"]),
    Formatting("static, several voters", BOTH + STATIC, [f"-I {SEVERAL}"]),
    Formatting("static broker", BROKER + STATIC, [""]),
    Formatting("nothing said", CONTROLLER + BOOTSTRAP, [""]),
    Formatting(
        "no transactions",
        BOTH + BOOTSTRAP,
        ["-s -f transaction.version=0 -f group.version=0 -f share.version=0 -f kraft.version=1"],
    ),
    Formatting(
        "levels",
        CONTROLLER + BOOTSTRAP,
        [
            "-s -f kraft.version=0",
            "-s -f kraft.version=2",
            "-s -f group.version=9",
            "-s -f group.version=0 -f bogus=1",
            "-s -f group.version",
            "-s -f metadata.version=20",
            "-N -f kraft.version=0",
            "-s -r 3.8 -f metadata.version=20",
            "-s -f metadata.version=99",
        ],
    ),
    Formatting("static level 1", BOTH + STATIC, ["-f kraft.version=1", "-f kraft.version=0"]),
    Formatting("old release", CONTROLLER + BOOTSTRAP, ["-s -r 3.9", "-s -r 3.8 -g"]),
    Formatting("older release", CONTROLLER + BOOTSTRAP, ["-s -r 3.8"]),
    Formatting("oldest release", BOTH + STATIC, ["-r 3.3"]),
    Formatting("elr", BOTH + STATIC, ["-r 3.9 -f eligible.leader.replicas.version=1"]),
    *[
        Formatting(f"voters {number}", CONTROLLER + BOOTSTRAP, [f"-I {voters}"])
        for number, voters in enumerate(
            [
                f"1@h:9093:{ID_A},1@h:9094:{ID_B}",
                f"3@h:9093:{ID_A},4@h:9094:{ID_A}",
                f"3@h:9093:{ID_A}",
                f"4@h:9093:{ID_A}",
                "3@h:9093",
                "3@h:9093:AAAA",
                f"3@h:port:{ID_A}",
                f"3@:9093:{ID_A}",
                f"x@h:9093:{ID_A}",
                f"3@h:9093:{ID_A},-4@h:9093:{ID_B}",
                f"3h:9093:{ID_A}",
                f"3@h:99999:{ID_A}",
                f"3@h:-1:{ID_A}",
                f"3@h:9093:{ID_A},",
                "3@h:9093:AAAAAAAAAAAAAAAAAAAAAA",
                f"3@h:9093-{ID_A}",
                f"3@[h:9093:{ID_A}",
            ]
        )
    ],
]


class Tree(NamedTuple):
    """What the calls said, and the files that they left."""

    said: list[Said]
    files: dict[str, tuple[int, bytes]]


@pytest.fixture(scope="module")
def tool_jvm(kafka: Kafka) -> Iterator[ToolJvm]:
    """Run Kafka's tools."""
    jvm = ToolJvm(kafka)
    yield jvm
    jvm.close()


@pytest.mark.parametrize("formatting", FORMATTINGS, ids=lambda one: one.name)
def test_a_directory_is_formatted_as_by_kafka(
    formatting: Formatting, tool_jvm: ToolJvm, tmp_path: Path
) -> None:
    """Same lines, statuses, files, modes and, but for times and random ids, bytes."""
    theirs = _play(formatting, tmp_path / "k", tool_jvm.run)
    ours = _play(formatting, tmp_path / "o", our_tool)
    assert ours.said == theirs.said
    assert ours.files.keys() == theirs.files.keys()
    for name, found in theirs.files.items():
        assert ours.files[name] == found, name


def _play(formatting: Formatting, directory: Path, run: Callable[..., Said]) -> Tree:
    directory.mkdir()
    config = directory / "node.properties"
    config.write_text(formatting.config.replace("{d}", str(directory)))
    said = []
    for call in formatting.calls:
        words = ["format", "-t", CLUSTER, "-c", str(config), *call.split()]
        said.append(_without_path(run("storage", words), directory))
    said.append(_without_path(run("storage", ["info", "-c", str(config)]), directory))
    config.unlink()
    files = [path for path in directory.rglob("*") if path.is_file()]
    ids = {path.parent: _directory_id(path) for path in files if path.name == "meta.properties"}
    return Tree(
        said,
        {
            str(path.relative_to(directory)): (
                path.stat().st_mode & ~stat.S_IRWXO,  # Kafka's are for every user
                _masked(path, list(ids.values())),
            )
            for path in files
        },
    )


def _without_path(said: Said, directory: Path) -> Said:
    def plain(lines: list[str]) -> list[str]:
        text = "\n".join(lines).replace(str(directory), "{d}")
        text = text.replace("java.lang.IllegalArgumentException: ", "")  # of an uncaught one
        text = re.sub(r"(?<=directory )\S+(?= is already)", "<any>", text)
        text = "\n".join(sorted(text.split("\n")))  # Java's sets have no order
        return re.sub(r"directory\.id=[\w-]{22}", "directory.id=<id>", text).split("\n")

    return Said(plain(said.out), plain(said.err), said.status)


def _directory_id(path: Path) -> bytes:
    found = re.search(r"^directory\.id=(\S+)$", path.read_text(), re.MULTILINE)
    assert found
    return bytes(Uuid.parse(found[1]))


def _masked(path: Path, ids: list[bytes]) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".checkpoint":
        return _masked_snapshot(data, ids)
    text = re.sub(r"^#.+$", "#<date>", data.decode(), flags=re.MULTILINE)
    return re.sub(r"^directory\.id=.*$", "directory.id=<id>", text, flags=re.MULTILINE).encode()


def _without_order(data: bytes) -> bytes:
    """Return what a snapshot holds: Java writes a set of several voters in any order."""
    content = decode_snapshot(data)
    assert content.voters is not None
    voters = sorted(content.voters)
    return repr((len(data), content.kraft_version, content.values, voters)).encode()


def _masked_snapshot(data: bytes, ids: list[bytes]) -> bytes:
    masked = bytearray(data)
    position = 0
    for batch in iterate_batches(memoryview(data)):
        for part in (CRC, TIMES):
            size = part.stop - part.start
            masked[position + part.start : position + part.stop] = bytes(size)
        for record in batch.records() if batch.is_control else ():
            message: Any = decode_control_message(record)
            if isinstance(message, VotersRecord) and len(message.voters) > 1:
                return _without_order(data)
            time_ms = getattr(message, "last_contained_log_timestamp", 0)
            if time_ms > 0:
                ids = [*ids, time_ms.to_bytes(8, "big")]
        position += batch.size
    result = bytes(masked)
    for one in ids:
        result = result.replace(one, bytes(len(one)))
    return result
