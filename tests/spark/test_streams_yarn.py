"""The same program on YARN: a ResourceManager and a NodeManager of Hadoop 3.5.0 on loopback.

The driver runs here, then in the cluster, on one checkpoint. The executors' Python is that of an
archive, which the NodeManager unpacks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.spark.cluster_runs import CountingRun
from tests.spark.hadoop_services import HOST
from tests.spark.linked_environment import make_environment
from tests.spark.yarn import running_yarn

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.conformance, pytest.mark.spark, pytest.mark.timeout(2700)]
JARS = Path(pyspark.__file__).parent / "jars"


def test_client_and_cluster_mode(
    node: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run goes on from the checkpoint of the first."""
    archive = make_environment(tmp_path / "environment")
    options = ["--archives", f"{archive}#environment"]
    settings = {
        "spark.pyspark.python": "./environment/bin/python",
        "spark.yarn.jars": f"local:{JARS}/*",
        "spark.executor.instances": "1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    options += [word for item in settings.items() for word in ("--conf", "=".join(item))]
    monkeypatch.setenv("SPARK_LOCAL_IP", HOST)
    counting = CountingRun(node.bootstrap, tmp_path, "yarn")
    with running_yarn(tmp_path / "yarn") as yarn:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.settings))
        for mode in ("client", "cluster"):
            counting.send()
            try:
                counting.run("yarn", "--deploy-mode", mode, *options)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{yarn.output()}") from error
            counting.check()
    assert len(list(yarn.logs.iterdir())) == 2
