"""Marks of tests that start Spark in this process."""

from __future__ import annotations

import pytest

SPARK_WARNINGS = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""Warnings of Spark's own code, not ours."""
