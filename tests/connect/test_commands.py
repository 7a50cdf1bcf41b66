"""The files and addresses of the commands of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from ottla.cli.commands.connect_standalone import read_connector

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_of_a_connector_that_is_no_text(tmp_path: Path) -> None:
    """It is refused in one line."""
    file = tmp_path / "c.properties"
    file.write_bytes(b"name=\xff")
    with pytest.raises(click.ClickException, match="cannot read"):
        read_connector(str(file))
