#!/usr/bin/env python3
"""Print what a node consists of as CycloneDX: Ottla and what it needs to run, with licences.

    .venv/bin/python scripts/sbom.py > ottla.cdx.json

It reads the installed packages and asks no index; the extras of pyproject.toml are left out.

Kafka: none; its releases list their jars in LICENSE-binary.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import Distribution


def needed(name: str, seen: set[str]) -> Iterator[Distribution]:
    """Yield a package and all that it requires on this platform, each once."""
    if canonicalize_name(name) in seen:
        return
    seen.add(canonicalize_name(name))
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    yield found
    for text in found.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield from needed(requirement.name, seen)


def component(found: Distribution) -> dict[str, Any]:
    """Return a package's entry."""
    name, version = found.metadata["Name"], found.version
    words = found.metadata.json
    licence = str(words.get("license_expression") or words.get("license") or "")
    entry: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name.lower()}@{version}",
    }
    if licence:
        entry["licenses"] = [{"license": {"name": licence.splitlines()[0]}}]
    return entry


def bill() -> dict[str, Any]:
    """Return the bill of materials."""
    ottla, *others = needed("ottla", set())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**component(ottla), "type": "application"}},
        "components": sorted(map(component, others), key=lambda one: str(one["name"]).lower()),
    }


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=2)
    print()
