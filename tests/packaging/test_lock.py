"""The hashes that `scripts/setup` checks are those of the packages that are locked."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([A-Za-z0-9._-]+==[^\s;\\]+)(.*(?:\n +--hash=.*)*)", re.MULTILINE)


def pins(name: str) -> dict[str, int]:
    """Return the number of hashes by package and version."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return {
        re.sub(r"[._]", "-", pin.partition("==")[0]).lower() + pin[pin.index("==") :]: len(
            re.findall(r"--hash=sha256:[0-9a-f]{64}", rest)
        )
        for pin, rest in PIN.findall(text)
    }


def test_every_locked_package_has_hashes() -> None:
    """Written by the command at the top of `requirements.sha256`."""
    locked, hashed = pins("requirements.lock"), pins("requirements.sha256")
    assert set(locked) == set(hashed)
    assert len(hashed) > 100
    assert all(hashed.values())
