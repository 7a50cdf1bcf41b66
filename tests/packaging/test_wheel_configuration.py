"""The wheels that cibuildwheel would build, and what the package says about itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PYTHONS = ("cp311", "cp312", "cp313", "cp314")
PLATFORMS = {
    "linux": ["manylinux_aarch64", "manylinux_x86_64", "musllinux_x86_64"],
    "macos": ["macosx_arm64", "macosx_x86_64"],
    "windows": ["win_amd64"],
}
LISTING = """
import sys
from contextlib import suppress
from cibuildwheel.__main__ import main
root, *systems = sys.argv[1:]
for system in systems:
    print("system", system, flush=True)
    sys.argv[1:] = ["--platform", system, "--print-build-identifiers", root]
    with suppress(SystemExit):
        main()
"""


def project() -> dict[str, Any]:
    """Return the settings of the project."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    settings: dict[str, Any] = tomllib.loads(text)["project"]
    return settings


@pytest.fixture(scope="module")
def identifiers() -> dict[str, list[str]]:
    """Return the builds of each system; one process lists them all, as it takes long to start."""
    printed = subprocess.run(
        [sys.executable, "-c", LISTING, str(ROOT), *PLATFORMS],
        capture_output=True,
        text=True,
        check=True,
        env={name: text for name, text in os.environ.items() if not name.startswith("CIBW_")},
    ).stdout
    sections = (section.split() for section in printed.split("system ")[1:])
    return {system: listed for system, *listed in sections}


@pytest.mark.parametrize(("system", "platforms"), PLATFORMS.items())
def test_wheels_are_built_for_six_platforms_and_every_python(
    identifiers: dict[str, list[str]], system: str, platforms: list[str]
) -> None:
    """The list is from cibuildwheel."""
    listed = identifiers[system]
    assert sorted(listed) == [f"{python}-{one}" for python in PYTHONS for one in platforms]
    named = {one.rpartition(" :: ")[2] for one in project()["classifiers"]}
    assert {f"3.{python.removeprefix('cp3')}" for python in PYTHONS} <= named


def test_the_package_names_its_licence_and_authors() -> None:
    """The files are there, and go into the wheel."""
    settings = project()
    assert settings["license-files"] == ["LICENSE", "NOTICE"]
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert settings["authors"] == [{"name": "The Ottla project"}]
    for name in ("NOTICE", "CONTRIBUTING.md", "SECURITY.md"):
        assert (ROOT / name).is_file()


def test_nothing_is_installed_from_an_index_under_this_name() -> None:
    """There is no release: documents and messages install from the source tree or a wheel."""
    places = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    told = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in places
        for line in path.read_text(encoding="utf-8").splitlines()
        if "pip install ottla" in line or "pip install 'ottla" in line
    ]
    assert not told
