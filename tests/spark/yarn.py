"""A ResourceManager and a NodeManager of Hadoop on loopback; no HDFS, files are local."""

from __future__ import annotations

import json
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.ports import free_ports
from tests.spark.hadoop_services import HOST, LOG, START_S, java_command, running, write_settings
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


DISKS = "yarn.nodemanager.disk-health-checker"


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
                f"{DISKS}.enable": "false",
                # Hadoop uses no disk that is filled to 90 %, however much is free
                f"{DISKS}.max-disk-utilization-per-disk-percentage": 100,
                "yarn.scheduler.minimum-allocation-mb": 128,
            },
        )
        (self.settings / "log4j.properties").write_text(LOG)

    def _write(self, name: str, settings: dict[str, object]) -> None:
        write_settings(self.settings / f"{name}.xml", settings)

    def nodes(self) -> int:
        """Return how many NodeManagers the ResourceManager knows; 0 before it answers."""
        try:
            address = f"http://{self.web}/ws/v1/cluster/metrics"
            with urllib.request.urlopen(address, timeout=60) as answer:
                return int(json.load(answer)["clusterMetrics"]["activeNodes"])
        except (OSError, ValueError, KeyError):
            return 0

    def output(self) -> str:
        """Return the ends of what all containers have written."""
        files = sorted(self.logs.glob("*/*/std*"))
        return "\n".join(f"{file}\n{file.read_text(errors='replace')[-2000:]}" for file in files)


@contextmanager
def running_yarn(directory: Path) -> Iterator[Yarn]:
    """Run a cluster of one node until the end of the block."""
    yarn = Yarn(directory)
    services = [f"org.apache.hadoop.yarn.server.{service}" for service in SERVICES]
    with running(java_command(yarn.settings), services, directory):
        wait_for(lambda: yarn.nodes() == 1, limit_s=START_S)
        yield yarn
