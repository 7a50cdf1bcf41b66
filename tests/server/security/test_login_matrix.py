"""Each protocol, mechanism and listener with good, bad, expired and revoked credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server.security.login_cells import CELLS, run_cells
from tests.server.security.login_sites import PROTOCOLS, local_site

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_cell(tmp_path: Path, protocol: str) -> None:
    """A node whose brokers speak a protocol; the last one is asked on all other listeners, too."""
    chosen = [cell for cell in CELLS if cell.role == "BROKERS" and cell.protocol == protocol]
    if protocol == PROTOCOLS[-1]:
        chosen += [cell for cell in CELLS if cell.role != "BROKERS"]
    users = [cell.user for cell in chosen if cell.mechanism == "PLAIN"]
    with local_site(tmp_path, protocol, users) as site:
        found = run_cells(site, chosen)
    assert {cell: got for cell, got in found.items() if got != cell.expected} == {}
