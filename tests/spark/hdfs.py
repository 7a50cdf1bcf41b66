"""A NameNode and a DataNode of Hadoop on loopback."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.ports import free_ports
from tests.spark.hadoop_services import HOST, LOG, START_S, java_command, running, write_settings
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVICES = (
    "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "org.apache.hadoop.hdfs.server.datanode.DataNode",
)


class Hdfs:
    """The settings of a cluster of one node."""

    def __init__(self, directory: Path) -> None:
        self.settings = directory / "conf"
        self.settings.mkdir(parents=True)
        name_node, web, *data_node = [f"{HOST}:{port}" for port in free_ports(5)]
        self.uri, self.web = f"hdfs://{name_node}", web
        write_settings(
            self.settings / "core-site.xml",
            {"fs.defaultFS": self.uri, "hadoop.tmp.dir": directory / "tmp"},
        )
        names = ("address", "http.address", "ipc.address")
        write_settings(
            self.settings / "hdfs-site.xml",
            {
                "dfs.replication": 1,
                "dfs.namenode.http-address": web,
                "dfs.namenode.name.dir": (directory / "names").as_uri(),
                "dfs.datanode.data.dir": (directory / "data").as_uri(),
                **{f"dfs.datanode.{name}": one for name, one in zip(names, data_node, strict=True)},
            },
        )
        (self.settings / "log4j.properties").write_text(LOG)

    def is_ready(self) -> bool:
        """Whether the DataNode is known, and files may be written."""
        query = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            with urllib.request.urlopen(f"http://{self.web}/{query}", timeout=60) as answer:
                (found,) = json.load(answer)["beans"]
        except (OSError, ValueError):
            return False
        return bool(found["NumLiveDataNodes"] == 1 and found["FSState"] == "Operational")


@contextmanager
def running_hdfs(directory: Path) -> Iterator[Hdfs]:
    """Run a cluster until the end of the block."""
    hdfs = Hdfs(directory)
    java = java_command(hdfs.settings)
    form = [*java, SERVICES[0], "-format", "-force", "-nonInteractive"]
    subprocess.run(form, check=True, capture_output=True, timeout=START_S)
    with running(java, SERVICES, directory):
        wait_for(hdfs.is_ready, limit_s=START_S)
        yield hdfs
