"""A ResourceManager and a NodeManager of Hadoop on loopback; no HDFS, files are local."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.spark.jvm.java import find_java
from tests.maven import fetched
from tests.ports import free_ports
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

POM = Path(__file__).parent / "hadoop" / "pom.xml"
HOST = "127.0.0.1"
SERVICES = ("resourcemanager.ResourceManager", "nodemanager.NodeManager")
ADDRESSES = (
    "resourcemanager.webapp.address",
    "resourcemanager.address",
    "resourcemanager.scheduler.address",
    "resourcemanager.resource-tracker.address",
    "resourcemanager.admin.address",
    "nodemanager.address",
    "nodemanager.localizer.address",
    "nodemanager.collector-service.address",
    "nodemanager.webapp.address",
)
LOG = """\
log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c: %m%n
"""
START_S = 120


def write_settings(path: Path, settings: dict[str, object]) -> None:
    """Write a file of Hadoop's settings."""
    lines = [
        f"<property><name>{key}</name><value>{value}</value></property>"
        for key, value in settings.items()
    ]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>"]))


class Yarn:
    """The settings of a cluster, and what its containers write."""

    def __init__(self, directory: Path) -> None:
        self.settings = directory / "conf"
        self.local = directory / "local"
        self.logs = directory / "logs"
        self.settings.mkdir(parents=True)
        addresses = [f"{HOST}:{port}" for port in free_ports(len(ADDRESSES))]
        self.web = addresses[0]
        self._write("core-site", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": directory / "tmp"})
        self._write(
            "capacity-scheduler",
            {
                "yarn.scheduler.capacity.root.queues": "default",
                "yarn.scheduler.capacity.root.default.capacity": 100,
                "yarn.scheduler.capacity.maximum-am-resource-percent": 1,
            },
        )
        self._write(
            "yarn-site",
            {
                **{f"yarn.{name}": one for name, one in zip(ADDRESSES, addresses, strict=True)},
                "yarn.nodemanager.local-dirs": self.local,
                "yarn.nodemanager.log-dirs": self.logs,
                "yarn.nodemanager.resource.memory-mb": 6144,
                "yarn.nodemanager.resource.cpu-vcores": 4,
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.disk-health-checker.enable": "false",
                "yarn.scheduler.minimum-allocation-mb": 128,
            },
        )
        (self.settings / "log4j.properties").write_text(LOG)

    def _write(self, name: str, settings: dict[str, object]) -> None:
        write_settings(self.settings / f"{name}.xml", settings)

    def nodes(self) -> int:
        """Return how many NodeManagers the ResourceManager knows; 0 before it answers."""
        try:
            with urllib.request.urlopen(f"http://{self.web}/ws/v1/cluster/metrics") as answer:
                return int(json.load(answer)["clusterMetrics"]["activeNodes"])
        except OSError:
            return 0

    def output(self) -> str:
        """Return the ends of what all containers have written."""
        files = sorted(self.logs.glob("*/*/std*"))
        return "\n".join(f"{file}\n{file.read_text(errors='replace')[-2000:]}" for file in files)


@contextmanager
def running_yarn(directory: Path) -> Iterator[Yarn]:
    """Run a cluster of one node until the end of the block."""
    yarn = Yarn(directory)
    libraries = fetched("hadoop-3.5.0", POM)
    command = [str(find_java().path), "-Xmx512m", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", f"{yarn.settings}:{libraries}/*"]
    with ExitStack() as stack:
        for service in SERVICES:
            log = stack.enter_context((directory / f"{service}.log").open("wb"))
            process = subprocess.Popen(
                [*command, f"org.apache.hadoop.yarn.server.{service}"], stdout=log, stderr=log
            )
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
        wait_for(lambda: yarn.nodes() == 1, limit_s=START_S)
        yield yarn
