"""Hadoop's settings, as far as a checkpoint is read by them: where a store is, and who asks.

Kafka: none; Hadoop: org.apache.hadoop.conf.Configuration.

They come from core-site.xml and hdfs-site.xml of HADOOP_CONF_DIR, then from options of the sink
with Hadoop's own names (`fs.s3a.endpoint`), as Spark's own sources take them. Spark passes options
with lower-cased names.
"""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

PREFIXES: Final = ("fs.", "dfs.", "hadoop.security.authentication")
_FILES: Final = ("core-site.xml", "hdfs-site.xml")
_OF_SPARK: Final = "spark.hadoop."


def hadoop_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by lower-cased name; an option comes before a file.

    ValueError for a file that is no XML.
    """
    given = {name.lower(): value for name, value in options.items()}
    return {**_of_files(), **{name: given[name] for name in given if name.startswith(PREFIXES)}}


def of_hadoop(settings: Mapping[str, str]) -> dict[str, str]:
    """Return those among Spark's settings (`spark.hadoop.fs.…`), by Hadoop's names."""
    given = {
        name.removeprefix(_OF_SPARK): value
        for name, value in settings.items()
        if name.startswith(_OF_SPARK)
    }
    return {name: value for name, value in given.items() if name.startswith(PREFIXES)}


def settings_of(spark: SparkSession) -> dict[str, str]:
    """Return those of a session, by Hadoop's names."""
    return of_hadoop(spark.conf.getAll)


def hadoop_user() -> str:
    """Return the name of the user that Hadoop's clients of this process have without Kerberos."""
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def _of_files() -> dict[str, str]:
    directory = os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")
    found: dict[str, str] = {}
    for name in _FILES if directory else ():
        path = Path(directory or "", name)
        if path.is_file():
            found.update(_of_file(path))
    return found


def _of_file(path: Path) -> dict[str, str]:
    try:
        root = ET.parse(path).getroot()  # noqa: S314 - the administrator's own file
    except ET.ParseError as error:
        raise ValueError(f"{path}: {error}") from error
    pairs = ((one.findtext("name"), one.findtext("value")) for one in root.iter("property"))
    return {name.strip().lower(): (value or "").strip() for name, value in pairs if name}
