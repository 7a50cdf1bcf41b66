"""Options of Spark for tools that start a session: master, settings, files for executors.

Kafka: no counterpart; the names are spark-submit's.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

F = TypeVar("F", bound="Callable[..., Any]")
_MASTER: Final = re.compile(r"local(\[.+\])?|yarn|(spark|k8s|sc)://.+")
_HADOOP: Final = frozenset({"HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_GATEWAY_PORT"})
"""Variables that name the cluster of YARN; the last is set in a driver that runs there."""
_YARN_ARCHIVES: Final = "spark.yarn.dist.archives"
"""With `spark.archives` executors of YARN unpack what their node has unpacked already."""


def spark_options(function: F) -> F:
    """Add --master, --deploy-mode, --conf, --py-files and --archives."""
    options = (
        click.option(
            "--master",
            default="local[2]",
            show_default=True,
            callback=_checked_master,
            help="local[N], spark://…, k8s://…, yarn, or sc://… of Spark Connect.",
        ),
        click.option(
            "--deploy-mode",
            type=click.Choice(["client", "cluster"]),
            default="client",
            show_default=True,
            help="Where the driver runs: here, or in the cluster (yarn).",
        ),
        click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark."),
        click.option("--py-files", metavar="FILE,…", help=".py, .zip files to import from."),
        click.option(
            "--archives", metavar="FILE#DIR,…", help="Archives that executors unpack into DIR."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def spark_config(options: dict[str, Any]) -> dict[str, str]:
    """Return Spark's settings by name; UsageError for an option that means nothing there."""
    config = dict(setting("--conf", option) for option in options["conf"])
    archives = _YARN_ARCHIVES if options["master"] == "yarn" else "spark.archives"
    for name, flag in (("spark.submit.pyFiles", "py_files"), (archives, "archives")):
        if options[flag]:
            config[name] = options[flag]
    master = options["master"]
    if options["deploy_mode"] == "cluster" and master != "yarn":
        raise click.UsageError(
            "--deploy-mode cluster needs --master yarn; in Kubernetes run this command in a pod, "
            "elsewhere on a machine of the cluster"
        )
    if master == "yarn" and not _HADOOP & set(os.environ):
        raise click.UsageError(
            "--master yarn: set HADOOP_CONF_DIR to the directory of yarn-site.xml and core-site.xml"
        )
    if master.startswith("sc://") and (options["py_files"] or options["archives"]):
        raise click.UsageError("--py-files, --archives: with Spark Connect the server has them")
    if master.startswith("k8s://") and "spark.kubernetes.container.image" not in config:
        raise click.UsageError("--master k8s://…: give --conf spark.kubernetes.container.image=…")
    return config


def check_java(master: str, config: Mapping[str, str]) -> None:
    """Raise UsageError for settings that the JVM of this master's driver cannot start with."""
    from ottla.errors import OttlaError
    from ottla.spark.jvm.options import JavaOptions, driver_options

    options = JavaOptions("1g", "ERROR", fast_start=False, temp_dir=None)
    try:
        driver_options(options, config, master)
    except OttlaError as error:
        raise click.UsageError(f"--conf: {error}") from error


def import_from(py_files: str | None) -> None:
    """Make the driver import from these files, as executors do."""
    for name in filter(None, (py_files or "").split(",")):
        path = Path(name).resolve()
        sys.path.insert(0, str(path.parent if path.suffix == ".py" else path))


def setting(flag: str, text: str) -> tuple[str, str]:
    """Return the name and the value of NAME=VALUE; UsageError for other texts."""
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise click.UsageError(f"{flag} takes NAME=VALUE, not {text}")
    return name, value


def _checked_master(_: click.Context, __: click.Parameter, master: str) -> str:
    if not _MASTER.fullmatch(master):
        raise click.BadParameter(
            f"{master} is none: local[2], spark://host:7077, k8s://https://host:6443, yarn, "
            "or sc://host:15002 of Spark Connect"
        )
    return master
