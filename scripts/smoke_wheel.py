"""Check an installed wheel: the command, compiled modules, records through a node and back.

`python scripts/smoke_wheel.py` expects compiled modules, with `--pure` none. It imports what is
installed, not the source tree.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import ottla
from ottla.records.compiled import COMPILED_MODULES, uncompiled_modules
from ottla.testing import Cluster

COUNT = 1000


def main() -> None:
    """Exit with a message where something is missing."""
    pure = "--pure" in sys.argv
    if Path(ottla.__file__).is_relative_to(Path(__file__).parents[1] / "src"):
        sys.exit("the source tree was imported instead of the wheel")
    missing = uncompiled_modules()
    if len(missing) != (len(COMPILED_MODULES) if pure else 0):
        sys.exit(f"not compiled: {', '.join(missing) or 'none'}")
    command = Path(sysconfig.get_path("scripts"), "ottla")
    shown = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
    print(shown.stdout.strip(), f"({len(COMPILED_MODULES) - len(missing)} modules compiled)")
    with Cluster() as cluster:
        exchange(cluster.bootstrap)


def exchange(bootstrap: str) -> None:
    """Send records and read them again."""
    values = [b"%d" % number for number in range(COUNT)]
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic("events", 1)
    with ottla.Producer(bootstrap_servers=bootstrap, compression_type="zstd") as producer:
        producer.send_many("events", values)
    read: list[bytes] = []
    with ottla.Consumer(
        "events", bootstrap_servers=bootstrap, group_id="smoke", auto_offset_reset="earliest"
    ) as consumer:
        for record in consumer:
            read.append(record.value)
            if len(read) == COUNT:
                break
    if read != values:
        sys.exit("records came back changed")
    print(f"{COUNT} records sent and read")


if __name__ == "__main__":
    main()
