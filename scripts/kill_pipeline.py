#!/usr/bin/env python3
"""Kill a chain of two Spark queries and its brokers at random; nothing may be lost or doubled.

    scripts/kill_pipeline.py --kills 10 --seed 1 [--nodes 3] [--standalone]

Numbers go into a topic all the time; one query copies them to a second topic, another one from
there to a third, with read_committed, each exactly once. Killed with SIGKILL: the driver with its
workers, one Python worker, or one broker, and an executor of a standalone Spark cluster. At the end
the committed records of the third topic are the numbers that were acknowledged, each once, and both
groups have no lag.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from ottla import Admin, KafkaError
from tests.spark.kills.clusters import (
    kill_executor,
    kill_executors_worker,
    kill_node,
    nodes_of,
)
from tests.spark.kills.driver import PARTITIONS, TOPICS, Driver
from tests.spark.kills.history import Feed, Wrong, check
from tests.spark.spark_services import standalone_cluster

if TYPE_CHECKING:
    from tests.conformance.clusters.nodes import Cluster

EARLY = 0.2
"""How often a fault comes while the queries still start."""
LOCAL = "local[2]"


def fault(rng: random.Random, cluster: Cluster, driver: Driver) -> str:
    """Kill something; return what."""
    kinds = ["driver", "driver", "worker", "broker"]
    kind = rng.choice([*kinds, "executor"] if driver.has_executors else kinds)
    if kind == "driver":
        driver.kill()
        driver.start()
    elif kind == "worker":
        done = driver.kill_worker(rng) or kill_executors_worker(rng)
        return kind if done else "nothing"
    elif kind == "broker":
        kill_node(cluster, rng)
    elif not kill_executor(rng):
        return "nothing"
    return kind


def run(kills: int, rng: random.Random, cluster: Cluster, driver: Driver) -> Counter[str]:
    """Kill until so many processes have died; show each."""
    faults: Counter[str] = Counter()
    while faults.total() - faults["nothing"] < kills:
        if rng.random() >= EARLY:
            driver.wait_until_started()
        time.sleep(rng.uniform(4, 16))
        driver.watch()
        faults[fault(rng, cluster, driver)] += 1
        print(time.strftime("%H:%M:%S"), dict(faults), file=sys.stderr, flush=True)
    return faults


def main() -> int:
    """Run the kills; print what was found as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--standalone", action="store_true", help="on a standalone Spark cluster")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with ExitStack() as stack:
        scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        directory = Path(stack.enter_context(scratch))
        cluster = stack.enter_context(nodes_of(directory, arguments.nodes))
        master = (
            stack.enter_context(standalone_cluster(directory)) if arguments.standalone else LOCAL
        )
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            for topic in TOPICS:
                admin.create_topic(topic, partitions=PARTITIONS)
        feed, driver = Feed(cluster.bootstrap), Driver(cluster.bootstrap, directory, master)
        feed.start()
        driver.start()
        try:
            faults = run(arguments.kills, rng, cluster, driver)
            feed.stop()
            check(cluster.bootstrap, feed.count, driver)
        except (Wrong, KafkaError) as error:
            print(driver.log.read_text()[-5000:], file=sys.stderr)
            print(f"WRONG: {error}", file=sys.stderr)
            return 1
        finally:
            feed.stop()
            driver.kill()
    print(json.dumps({"records": feed.count, "faults": dict(faults), "result": "each once"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
