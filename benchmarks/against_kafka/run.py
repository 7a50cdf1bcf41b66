"""Comparison with Kafka 4.3.0: alternating runs, ratios of medians, CPU from /proc.

    python benchmarks/against_kafka/run.py --libs KAFKA_LIBS [--quick] [--floor] [--only NAME]

Prints a table and writes it to benchmarks/against_kafka/RESULTS.md. A ratio below 1 means that
Ottla needs less. Kafka is warmed up first, since a cold JVM costs three times as much.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import mmap
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from brokers import HEAP, Broker, Floor, Ottla, RealKafka

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
LOADER = HERE / "load"


class Case(NamedTuple):
    """One load: the loader's arguments, the unit, and the budget for the CPU ratio."""

    name: str
    arguments: tuple[str, ...]
    budget: float
    unit: str = "request"
    partitions: int = 1
    source: str = ""
    """The case whose topic a consume load reads."""


def produce(*arguments: str) -> tuple[str, ...]:
    """Return the loader's arguments for a produce load."""
    return ("produce", *arguments)


CASES = (
    Case("small produce, 8 clients", produce("-clients", "8", "-requests", "40000"), 0.7),
    Case("small produce, 64 clients", produce("-clients", "64", "-requests", "40000"), 0.7),
    Case("small produce, 1 client", produce("-clients", "1", "-requests", "15000"), 0.7),
    Case("small produce, 32 clients", produce("-clients", "32", "-requests", "40000"), 0.7),
    Case("small produce, 500 clients", produce("-clients", "500", "-requests", "40000"), 0.7),
    Case("500 records/s", produce("-clients", "4", "-requests", "2500", "-rate", "500"), 0.5),
    Case(
        "100 x 100 B, none",
        produce("-clients", "8", "-requests", "8000", "-batch", "100"),
        0.5,
        "record",
    ),
    Case(
        "100 x 100 B, lz4",
        produce("-clients", "8", "-requests", "8000", "-batch", "100", "-codec", "lz4"),
        0.8,
        "record",
    ),
    Case(
        "100 x 100 B, zstd",
        produce("-clients", "8", "-requests", "8000", "-batch", "100", "-codec", "zstd"),
        0.8,
        "record",
    ),
    Case(
        "9000 x 100 B, lz4",
        produce("-clients", "4", "-requests", "400", "-batch", "9000", "-codec", "lz4"),
        0.8,
        "record",
    ),
    Case(
        "1000 x 1 KB, lz4",
        produce(
            "-clients", "4", "-requests", "1000", "-batch", "1000", "-size", "1000", "-codec", "lz4"
        ),
        0.8,
        "record",
    ),
    Case(
        "100 x 1 KB, none",
        produce("-clients", "4", "-requests", "6000", "-batch", "100", "-size", "1000"),
        0.65,
        "GB",
    ),
    Case(
        "small produce, acks=all, 8 clients",
        produce("-clients", "8", "-requests", "20000", "-acks", "all"),
        0.7,
    ),
    Case(
        "small produce over 100 partitions",
        produce("-clients", "8", "-requests", "20000", "-partitions", "100"),
        0.7,
        partitions=100,
    ),
    Case(
        "small produce over 1000 partitions",
        produce("-clients", "8", "-requests", "20000", "-partitions", "1000"),
        0.7,
        partitions=1000,
    ),
    Case("consume 1 KB", ("consume", "-records", "600000"), 0.7, "GB", source="100 x 1 KB, none"),
    Case(
        "consume 100 B from 1000 partitions",
        ("consume", "-records", "20000"),
        0.7,
        "record",
        source="small produce over 1000 partitions",
    ),
    Case(
        "consume 100 B from 1000 partitions, 25 clients in turn",  # 25 x 20,000: above the tick
        ("consume", "-records", "20000", "-repeats", "25"),
        0.7,
        "record",
        source="small produce over 1000 partitions",
    ),
)
PAGES_TO_BACK_BYTES = 3 * 1024**3
_SCALE = {"request": 1e6, "record": 1e6, "GB": 1e9}
_SHOWN = {"request": "µs/request", "record": "µs/record", "GB": "s/GB"}


class Sample(NamedTuple):
    """One run: broker CPU per unit, throughput in units per second, latency."""

    cpu: float
    rate: float
    p50_ms: float
    p99_ms: float


def topic_of(case: Case) -> str:
    """Return the topic that a case writes or reads."""
    return "".join(c if c.isalnum() else "-" for c in case.source or case.name)


def back_free_pages() -> None:
    """Touch and release free memory, so that the host backs the guest's pages.

    A virtual machine that reports free pages to its host loses them and takes several microseconds
    for the first touch of each page of the page cache: more than a broker needs for the page, and
    independent of the broker.
    """
    with mmap.mmap(-1, PAGES_TO_BACK_BYTES) as pages:
        for start in range(0, len(pages), mmap.PAGESIZE):
            pages[start] = 1


def run_case(loader: str, broker: Broker, case: Case) -> Sample:
    """Run the load once and return the sample."""
    before = broker.cpu_seconds()
    spread = ["-partitions", str(case.partitions)] if case.partitions > 1 else []
    command = [loader, *case.arguments, *spread]
    output = subprocess.run(
        [*command, "-brokers", broker.bootstrap, "-topic", topic_of(case)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    cpu = broker.cpu_seconds() - before
    done = json.loads(output)
    batch = int(_argument(case.arguments, "-batch", "1"))
    requests = done["records"] / batch
    amount = {"request": requests, "record": done["records"], "GB": done["bytes"]}[case.unit]
    scale = _SCALE[case.unit]
    rate = amount / done["seconds"]
    return Sample(cpu / amount * scale, rate, done["p50_ms"], done["p99_ms"])


def _argument(arguments: tuple[str, ...], name: str, default: str) -> str:
    return arguments[arguments.index(name) + 1] if name in arguments else default


def create_topics(broker: Broker) -> None:
    """Create every case's topic."""
    from ottla import Admin

    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        for case in CASES:
            admin.create_topic(
                topic_of(case),
                partitions=case.partitions,
                replication_factor=1,
                configs={"retention.bytes": "4000000000"},
                if_not_exists=True,
            )


def set_unrelated_quotas(broker: Broker) -> None:
    """Set quotas that do not apply to the load, as on clusters with quotas."""
    from ottla import Admin

    limits = {"producer_byte_rate": 1e9, "consumer_byte_rate": 1e9, "request_percentage": 200.0}
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        for error in admin.alter_client_quotas([({"client-id": "somebody"}, limits)]).values():
            if error is not None:
                raise error


def warm(loader: str, broker: Broker, seconds: float) -> None:
    """Run small produce requests for a while, so that the JVM compiles the hot code."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        run_case(loader, broker, CASES[0])


def build_loader() -> str:
    """Compile the load generator; needs Go."""
    target = str(Path(tempfile.gettempdir()) / "ottla-load")
    subprocess.run(["go", "build", "-o", target, "."], cwd=LOADER, check=True)
    return target


def has_floor(case: Case) -> bool:
    """Whether the minimal broker serves the case: uncompressed produce to one partition."""
    return (
        case.arguments[0] == "produce" and case.partitions == 1 and "-codec" not in case.arguments
    )


def compare(loader: str, brokers: list[Broker], case: Case, runs: int) -> dict[str, object]:
    """Run a case alternately against all brokers and return medians and ratios."""
    samples: dict[str, list[Sample]] = {broker.name: [] for broker in brokers}
    for _ in range(runs):
        for broker in brokers:
            if broker.name == "floor" and not has_floor(case):
                continue
            back_free_pages()
            samples[broker.name].append(run_case(loader, broker, case))
    medians = {
        name: Sample(*(statistics.median(column) for column in zip(*some, strict=True)))
        for name, some in samples.items()
        if some
    }
    kafka, ottla = medians["kafka"], medians["ottla"]
    return {
        "case": case.name,
        "unit": _SHOWN[case.unit],
        "kafka": kafka,
        "ottla": ottla,
        "floor": medians.get("floor"),
        "cpu_ratio": ottla.cpu / kafka.cpu if kafka.cpu else 0.0,
        "rate_ratio": ottla.rate / kafka.rate,
        "p50_ratio": ottla.p50_ms / kafka.p50_ms if kafka.p50_ms else 0.0,
        "p99_ratio": ottla.p99_ms / kafka.p99_ms if kafka.p99_ms else 0.0,
        "budget": case.budget,
    }


def markdown(rows: list[dict[str, object]], facts: list[str]) -> str:
    """Return the table as Markdown."""
    brokers = ("broker CPU kafka", "ottla", "bare minimum")
    columns = ("load", *brokers, "ratio", "budget", "throughput", "p50", "p99")
    lines = [
        "# Ottla against Kafka 4.3.0",
        "",
        *[f"- {fact}" for fact in facts],
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for row in rows:
        kafka, ottla, floor = row["kafka"], row["ottla"], row["floor"]
        assert isinstance(kafka, Sample)
        assert isinstance(ottla, Sample)
        least = f"{floor.cpu:.2f}" if isinstance(floor, Sample) else "-"
        held = "" if row["cpu_ratio"] <= row["budget"] else " **missed**"  # type: ignore[operator]
        lines.append(
            f"| {row['case']} | {kafka.cpu:.2f} {row['unit']} | {ottla.cpu:.2f} | {least} "
            f"| {row['cpu_ratio']:.2f}{held} | {row['budget']} | {row['rate_ratio']:.2f} "
            f"| {row['p50_ratio']:.2f} | {row['p99_ratio']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libs", required=True, help="directory of Kafka 4.3.0's jars")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--warm-seconds", type=float, default=60)
    parser.add_argument("--quick", action="store_true", help="3 runs, 15 s of warm-up")
    parser.add_argument("--floor", action="store_true", help="also measure the minimal broker")
    parser.add_argument(
        "--everything", action="store_true", help="with the metrics endpoint and quotas"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="only cases whose name contains this; repeatable",
    )
    options = parser.parse_args()
    runs, warm_seconds = (3, 15.0) if options.quick else (options.runs, options.warm_seconds)
    loader = build_loader()
    directory = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    endpoint = ["metrics.listener=127.0.0.1:0"] if options.everything else []
    starters: list[Callable[[], Broker]] = [
        lambda: Ottla(directory / "ottla", *endpoint),
        lambda: RealKafka(options.libs, directory / "kafka"),
    ]
    if options.floor:
        starters.append(Floor)
    brokers: list[Broker] = []
    try:
        for start in starters:
            brokers.append(start())
            time.sleep(3)  # so that no broker starts while another one is still starting
        idle = {broker.name: broker.resident_mb() for broker in brokers}
        starts = {broker.name: broker.start_seconds for broker in brokers}
        for broker in brokers:
            create_topics(broker)
            if options.everything:
                set_unrelated_quotas(broker)
            warm(loader, broker, warm_seconds if broker.name == "kafka" else 3)
        rows = []
        for case in CASES:
            if options.only and not any(one in case.name for one in options.only):
                continue
            rows.append(compare(loader, brokers, case, runs))
            print(rows[-1], flush=True)
        today = f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}, {platform.machine()}"
        facts = [
            f"{today}, {os.cpu_count()} cores, Python {platform.python_version()}, heap {HEAP}",
            f"command: `{' '.join(['scripts/bench', *sys.argv[1:]])}`".replace(options.libs, "…"),
            f"medians of {runs} alternating runs, Kafka warmed for {warm_seconds:.0f} s",
            *[
                (
                    f"{broker.name}: port open after {starts[broker.name]:.2f} s, idle "
                    f"{idle[broker.name]:.0f} MB, loaded {broker.resident_mb():.0f} MB"
                )
                for broker in brokers
            ],
        ]
        table = markdown(rows, facts)
        if not options.only:
            (HERE / "RESULTS.md").write_text(table, encoding="utf-8")
        print(table)
    finally:
        for broker in brokers:
            broker.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
