"""An application whose checkpoint is on a disk that is full for a while, as a process of its own.

The disk is a file system in memory of a few MB, which takes a user namespace or the rights to
mount. Where a machine gives neither, the JVM may write no file larger than some bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import psutil

from ottla import Producer
from ottla.spark import session, stop
from ottla.streams import Streams
from ottla.streams.run.supervisor import is_final, reason
from tests.spark.test_streams_faults import doubled

TIMEOUT_S = 400
BLOCK_BYTES = 4096
ROUNDS = 3
_MOUNT = 'mount -t tmpfs -o size=16m none "$1" && shift && exec "$@"'
_NAMESPACES = (
    ("unshare", "--user", "--map-root-user", "--mount"),
    ("unshare", "--mount"),
)


class Shortage(Protocol):
    """What keeps the JVM from writing."""

    def begin(self, number: int) -> None:
        """Leave no space, or room for some of a micro-batch's files: more with each number."""

    def end(self) -> None:
        """Give the space back."""


class FullDisk:
    """A file takes all space of the checkpoint's disk but for some blocks."""

    FREE_BLOCKS = (0, 2, 3)
    """Of a micro-batch's files (offsets, two of the state, commit) some are written."""

    def __init__(self, checkpoint: Path) -> None:
        self._filler = checkpoint / "filler"

    def begin(self, number: int) -> None:
        """Write until the disk is full; give some blocks back."""
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(BLOCK_BYTES)):
                pass
        blocks = self._filler.stat().st_size // BLOCK_BYTES
        os.truncate(self._filler, max(blocks - self.FREE_BLOCKS[number], 0) * BLOCK_BYTES)

    def end(self) -> None:
        """Delete the file."""
        self._filler.unlink()


class SmallFiles:
    """The JVM may write no file that is larger than some bytes."""

    LIMITS_BYTES = (0, 40, 400)

    def __init__(self) -> None:
        children = psutil.Process().children(recursive=True)
        (self._java,) = [one for one in children if one.name() == "java"]
        self._before = self._java.rlimit(psutil.RLIMIT_FSIZE)

    def begin(self, number: int) -> None:
        """Set the limit."""
        self._java.rlimit(psutil.RLIMIT_FSIZE, (self.LIMITS_BYTES[number], self._before[1]))

    def end(self) -> None:
        """Take the limit away."""
        self._java.rlimit(psutil.RLIMIT_FSIZE, self._before)


def namespace_command(directory: Path) -> list[str] | None:
    """Return what runs a command with a small disk at a directory; None if nothing may mount."""
    for namespace in _NAMESPACES:
        command = [*namespace, "sh", "-c", _MOUNT, "sh", str(directory)]
        with contextlib.suppress(OSError):
            if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
                return command
    return None


def main(bootstrap: str, checkpoint: Path, kind: str, name: str) -> None:
    """Run with space, then with less and less of it, then with space again.

    Prints JSON: the lines of the errors, whether they are final, what the state has counted.
    """
    spark = session("full disk", class_cache=False, fast_start=True)
    topology = doubled(name).build()
    app = Streams(topology, bootstrap_servers=bootstrap, checkpoint=checkpoint, spark=spark)

    def run(number: int) -> None:
        with Producer(bootstrap_servers=bootstrap) as producer:
            producer.send(f"{name}-in", str(number).encode(), "k")
        app.process_available(TIMEOUT_S)

    run(0)
    shortage: Shortage = FullDisk(checkpoint) if kind == "disk" else SmallFiles()
    errors = []
    for number in range(ROUNDS):
        shortage.begin(number)
        try:
            run(number + 1)
        except Exception as error:
            errors.append((reason(error), is_final(error)))
        shortage.end()
    run(ROUNDS + 1)
    print(json.dumps({"errors": errors, "count": app.store("counts").get("k").value}))
    stop(spark)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:5])
