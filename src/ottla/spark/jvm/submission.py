"""Gives a program to a cluster that runs its driver, too.

Kafka: no counterpart; spark-submit --deploy-mode cluster, without Spark's shell scripts.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.find_spark_home import _find_spark_home

from ottla.spark.jvm.launching import find_java, java_command
from ottla.spark.jvm.options import JavaOptions, submit_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PYTHON = "spark.pyspark.python"
"""The setting with the Python of driver and executors."""


def submit(
    master: str, config: Mapping[str, str], main: Path, arguments: Sequence[str] = ()
) -> int:
    """Run a Python file with arguments in the cluster; return 0 once it has ended well.

    Without `spark.yarn.submit.waitAppCompletion` it returns when the cluster has accepted it.
    Raises JavaMissing.
    """
    with tempfile.TemporaryDirectory(prefix="ottla-submit-") as directory:
        return _submit(master, config, [str(main), *arguments], Path(directory))


def _submit(master: str, config: Mapping[str, str], program: Sequence[str], directory: Path) -> int:
    spark_home = Path(_find_spark_home())
    settings = {**config, "spark.submit.deployMode": "cluster"}
    command = java_command(
        find_java(),
        spark_home,
        JavaOptions("1g", "ERROR", fast_start=True, temp_dir=None),
        directory=directory,
        archive=(),
        arguments=[*submit_arguments(master, settings, directory), *program],
    )
    environment = {**os.environ, "SPARK_HOME": str(spark_home)}
    if PYTHON in config:  # the driver's JVM has it of its environment
        environment["PYSPARK_PYTHON"] = environment["PYSPARK_DRIVER_PYTHON"] = config[PYTHON]
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603 - no shell
