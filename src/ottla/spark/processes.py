"""Spark's Python processes, as one of them sees itself: forked by a daemon, below a JVM.

Kafka: none; Spark: PythonWorkerFactory, pyspark/daemon.py.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import psutil

from ottla.spark.forking.launcher import JVM

DAEMON: Final = "pyspark.daemon"


def is_forked() -> bool:
    """Whether a daemon of PySpark has forked this process, as it does where the system can fork."""
    main = sys.modules.get("__main__")
    return getattr(getattr(main, "__spec__", None), "name", None) == DAEMON


def spark_jvm() -> psutil.Process:
    """Return the JVM that this process works for; psutil.Error where that one is out of sight.

    Spark has a daemon for each kind of question, so that only the JVM is the same for all.
    """
    if JVM in os.environ:
        return psutil.Process(int(os.environ[JVM]))
    parent = psutil.Process().parent()
    found = parent.parent() if parent is not None and is_forked() else parent
    if found is None:
        raise psutil.NoSuchProcess(0)
    return found
