"""A node without tiered storage: produces and fetches cost nothing for it."""

from __future__ import annotations

import subprocess
import sys

TRAFFIC = """
import sys
import ottla
from ottla.testing import Cluster

with Cluster(config={"metrics.listener": "127.0.0.1:0"}) as cluster:
    with ottla.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send("t", b"x")
    at = ottla.TopicPartition("t", 0)
    reset = "earliest"
    with ottla.Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset=reset) as consumer:
        consumer.assign([at])
        assert consumer.poll(60.0)
    assert cluster.run(lambda node: (node.remote_logs, node.broker.remote_reader)) == (None, None)
    homes = ("ottla.server.remote.", "ottla.storage.remote.")
    print([name for name in sys.modules if name.startswith(homes)])
"""


def test_no_module_of_tiered_storage_is_loaded() -> None:
    """So no object of it exists, and no call of a produce or fetch can reach it."""
    done = subprocess.run(
        [sys.executable, "-c", TRAFFIC], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"
