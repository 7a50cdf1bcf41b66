"""The files and addresses of the commands of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from ottla.cli.commands.connect_standalone import bind_listener, read_connector

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "text",
    ["http://worker1:8083", "http://0.0.0.0:0", "http://:99999", "http://[::1", "https://:1", "x"],
)
def test_listeners_that_are_refused_in_one_line(text: str) -> None:
    """Also a name, which may be that of any machine, and what is no address."""
    with pytest.raises(click.ClickException, match="listeners: "):
        bind_listener(text)


def test_an_address_of_ipv6_can_be_asked_by_other_workers() -> None:
    """Its colons are not those of the port."""
    try:
        server, address = bind_listener("http://[::1]:0")
    except click.ClickException as error:
        pytest.skip(str(error))
    server.stop()
    assert address == f"[::1]:{server.address[1]}"


def test_a_file_of_a_connector_that_is_no_text(tmp_path: Path) -> None:
    """It is refused in one line."""
    file = tmp_path / "c.properties"
    file.write_bytes(b"name=\xff")
    with pytest.raises(click.ClickException, match="cannot read"):
        read_connector(str(file))
