"""scripts/sbom.py lists what a node needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "sbom.py"


def test_the_bill_of_materials() -> None:
    """Each package once, with its version; what only tests need is not in it."""
    done = subprocess.run([sys.executable, str(SCRIPT)], check=True, capture_output=True, text=True)
    bill = json.loads(done.stdout)
    assert bill["metadata"]["component"]["name"] == "ottla"
    names = [one["name"].lower() for one in bill["components"]]
    assert len(names) == len(set(names))
    assert {"cryptography", "cramjam", "click", "starlette"} <= set(names)
    assert not {"pytest", "mypy", "confluent-kafka"} & set(names)
    assert all(one["version"] in one["purl"] for one in bill["components"])
