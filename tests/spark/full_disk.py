"""An application whose checkpoint is on a small disk, which is full for a while.

Run by hand against a node that has the topics full-in and full-out, since it needs the right to
mount a small file system:

    mkdir /tmp/full; unshare -rm sh -c 'mount -t tmpfs -o size=16m none /tmp/full &&
        exec .venv/bin/python -m tests.spark.full_disk 127.0.0.1:9092 /tmp/full'

Prints JSON: the lines of the errors, each with "No space left on device" and what to do, and what
the state has counted in the end: 5, and full-out has 0, 2, 4, 6, 8 once each.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from ottla import Producer
from ottla.spark import session, stop
from ottla.streams import Streams
from ottla.streams.supervisor import reason
from tests.spark.test_streams_faults import doubled

TIMEOUT_S = 400
BLOCK_BYTES = 4096
FREE_BLOCKS = (0, 2, 3)
"""Of a micro-batch's files (offsets, two of the state, commit) some are written."""


def fill(path: Path, free_blocks: int) -> None:
    """Take all space that is left but for some blocks."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(BLOCK_BYTES)):
            pass
    blocks = path.stat().st_size // BLOCK_BYTES
    os.truncate(path, max(blocks - free_blocks, 0) * BLOCK_BYTES)


def main(bootstrap: str, checkpoint: Path) -> None:
    """Run with space, then with less and less of it, then with space again."""
    spark = session("full disk", class_cache=False, fast_start=True)
    app = Streams(
        doubled("full").build(), bootstrap_servers=bootstrap, checkpoint=checkpoint, spark=spark
    )

    def run(number: int) -> None:
        with Producer(bootstrap_servers=bootstrap) as producer:
            producer.send("full-in", str(number).encode(), "k")
        app.process_available(TIMEOUT_S)

    run(0)
    filler = checkpoint / "filler"
    lines = []
    for number, free_blocks in enumerate(FREE_BLOCKS, 1):
        fill(filler, free_blocks)
        try:
            run(number)
        except Exception as error:
            lines.append(reason(error))
        filler.unlink()
    run(len(FREE_BLOCKS) + 1)
    print(json.dumps({"lines": lines, "count": app.store("counts").get("k").value}))
    stop(spark)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
