"""What pytest shows for a mistake of the user: the text, at the line of the test, no internals."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import ClusterError, ForeignCluster, cluster
from tests.testing import mistakes
from tests.waits import WAIT_S

SOURCE = Path(mistakes.__file__)
CALLS = {
    name: function.__doc__
    for name, function in vars(mistakes).items()
    if name.startswith("test_") and function.__doc__ is not None
}


@pytest.fixture(scope="module")
def reports() -> dict[str, str]:
    """Run all mistakes once, in a process of their own; return what is shown for each."""
    options: tuple[str, ...] = ("-q", "-o", f"python_files={SOURCE.name}", "--noconftest")
    for plugin in ("randomly", "xdist", "hypothesispytest", "anyio"):  # slow to load
        options += ("-p", f"no:{plugin}")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(SOURCE)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=4 * WAIT_S,
        check=False,
    )
    head = r"^_+ (?:ERROR at \w+ of )?(test_\w+) _+$"
    parts = re.split(head, ran.stdout, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", CALLS)
def test_a_mistake_is_shown_by_its_text_alone(reports: dict[str, str], name: str) -> None:
    """The only frame is that of the test."""
    report = reports[name]
    assert CALLS[name] in report
    assert "src/ottla" not in report
    assert "contextlib.py" not in report


def test_a_broker_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first test, after seconds."""
    monkeypatch.setattr(cluster, "ANSWER_TIMEOUT_S", 0.1)
    with (
        pytest.raises(ClusterError, match=r"--ottla-url 127\.0\.0\.1:1: .*is a broker running"),
        ForeignCluster("127.0.0.1:1"),
    ):
        pass
