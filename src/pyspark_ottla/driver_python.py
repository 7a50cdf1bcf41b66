"""Makes a plain SparkSession look for data sources with the Python that started it.

Spark looks for Python data sources with the `python3` of PATH unless PYSPARK_DRIVER_PYTHON or
PYSPARK_PYTHON is set. In a virtual environment that is not on PATH (an IDE, cron, a service) that
Python has no Ottla, and Spark does not find the format "ottla". The wheel's `pyspark_ottla.pth`
imports this module when Python starts; the variable is set only when a process imports pyspark and
the user has set neither. PYSPARK_PYTHON, which also selects the Python of remote workers, is left
alone.

Kafka: none.
"""

import os
import sys


class DriverPython:
    """An import hook that finds no module; it sets the variable when pyspark is imported."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002 - the signature of finders
        """Set the variable for pyspark."""
        if fullname != "pyspark":
            return
        sys.meta_path.remove(self)
        if sys.executable and "PYSPARK_PYTHON" not in os.environ:
            os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def install() -> None:
    """Wait for the import of pyspark."""
    sys.meta_path.insert(0, DriverPython())
