"""Spark's Python processes, as one of them sees itself: forked by a daemon, below a JVM.

Kafka: none; Spark: PythonWorkerFactory, pyspark/daemon.py.

PySpark's daemon collects all garbage of a worker after each task. With pyarrow and pandas loaded
that takes 30 ms of CPU and more, in each of the six processes of a micro-batch. Objects that are
there at a worker's second and eighth use, its modules, are exempted from then on. What the first
uses have left is freed before, by the daemon.
"""

from __future__ import annotations

import gc
import os
import sys
from itertools import count
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


FROZEN_AT: Final = (2, 8)
"""The uses before which the modules are exempted: later uses may load more of them."""
_uses = count(1)


def note_use() -> None:
    """Count a use of this process, if it is one of Spark's workers."""
    if is_forked() and next(_uses) in FROZEN_AT:
        gc.freeze()
