"""The variable with which a plain SparkSession finds the data source."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark_ottla.driver_python import DriverPython, install

if TYPE_CHECKING:
    import pytest


def test_the_import_of_pyspark_sets_the_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that import, and only once."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    install()
    hook = sys.meta_path[0]
    assert isinstance(hook, DriverPython)
    hook.find_spec("pyarrow", None)
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ
    hook.find_spec("pyspark", None)
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert hook not in sys.meta_path


def test_a_python_that_the_user_has_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either variable."""
    for given in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
        monkeypatch.setenv(given, "/usr/bin/python3.13")
        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
        install()
        sys.meta_path[0].find_spec("pyspark", None)
        values = {os.environ.get("PYSPARK_PYTHON"), os.environ.get("PYSPARK_DRIVER_PYTHON")}
        assert values == {"/usr/bin/python3.13", None}
