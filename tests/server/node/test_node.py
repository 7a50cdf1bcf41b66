"""The construction of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.errors import OttlaError
from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["meta.properties", "__cluster_metadata-0/quorum-state"])
def test_a_node_that_cannot_be_built_frees_its_ports_and_directories(
    tmp_path: Path, name: str
) -> None:
    """The next one starts on the same port and data, in the same process."""
    with Cluster(data_dir=str(tmp_path)) as cluster:
        bootstrap = cluster.bootstrap
        cluster.shutdown()
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(b"damaged")
        with pytest.raises(OttlaError):
            cluster.start()
        (tmp_path / name).write_bytes(content)
        cluster.start()
        assert cluster.bootstrap == bootstrap
