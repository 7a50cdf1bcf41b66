"""CPU, memory and start of a Connect worker with idle connectors.

    python benchmarks/connect_idle.py [--runtime process|thread] [--connectors 10] [--seconds 30]

Node and worker run in their own processes. Half of the connectors are FileStreamSource of empty
files, half FileStreamSink of an empty topic. CPU and memory are of the worker with all its
processes; memory counts shared pages once (PSS).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL, Popen
from urllib.error import URLError
from urllib.request import urlopen

import psutil
from against_kafka.brokers import Ottla, free_port

LIMIT_S = 120
WORKER = """
bootstrap.servers={bootstrap}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename={directory}/offsets
listeners=http://127.0.0.1:{port}
ottla.runtime={runtime}
"""
CONNECTOR = """
name=idle-{number}
connector.class=FileStream{kind}
file={directory}/{number}.txt
{topic}=idle
"""


def wait_until_running(port: int, count: int) -> None:
    """Wait until so many connectors and a task of each are RUNNING."""
    end_s = time.monotonic() + LIMIT_S
    url = f"http://127.0.0.1:{port}/connectors?expand=status"
    while time.monotonic() < end_s:
        try:
            with urlopen(url, timeout=LIMIT_S) as answer:
                listed = [it["status"] for it in json.load(answer).values() if "status" in it]
        except URLError:
            listed = []
        states = [part["state"] for it in listed for part in (it["connector"], *it["tasks"])]
        if states == ["RUNNING"] * (2 * count):
            return
        time.sleep(0.05)
    raise TimeoutError(f"the connectors do not run after {LIMIT_S} s")


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """Return the time that processes have computed."""
    return sum(sum(it.cpu_times()[:2]) for it in processes)


def measure(node: Ottla, directory: Path, options: argparse.Namespace) -> None:
    """Start a worker and print its figures."""
    port = free_port()
    places = {"bootstrap": node.bootstrap, "directory": directory, "port": port}
    files = [directory / "worker.properties"]
    files[0].write_text(WORKER.format(**places, runtime=options.runtime))
    for number in range(options.connectors):
        (directory / f"{number}.txt").touch()
        files.append(directory / f"{number}.properties")
        kind, topic = (("Source", "topic"), ("Sink", "topics"))[number % 2]
        text = CONNECTOR.format(number=number, kind=kind, directory=directory, topic=topic)
        files[-1].write_text(text)
    start_s = time.monotonic()
    command = [sys.executable, "-m", "ottla", "connect-standalone", *map(str, files)]
    with Popen(command, stdout=DEVNULL, stderr=DEVNULL) as worker:
        try:
            wait_until_running(port, options.connectors)
            print(f"all run after {time.monotonic() - start_s:.1f} s")
            time.sleep(5)
            own = psutil.Process(worker.pid)
            processes = [own, *own.children(recursive=True)]
            before_s = cpu_seconds(processes)
            time.sleep(options.seconds)
            used = 100 * (cpu_seconds(processes) - before_s) / options.seconds
            pss_mb = sum(it.memory_full_info().pss for it in processes) / 1e6
        finally:
            worker.terminate()
    print(f"{options.connectors} idle connectors ({options.runtime}): {used:.2f} % of a core")
    print(f"memory of {len(processes)} processes: {pss_mb:.0f} MB")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", choices=("process", "thread"), default="process")
    parser.add_argument("--connectors", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        node = Ottla(Path(directory) / "node")
        try:
            measure(node, Path(directory), options)
        finally:
            node.stop()


if __name__ == "__main__":
    main()
