"""The construction of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.errors import OttlaError
from ottla.network.tls_context import TlsError
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


def test_a_metrics_endpoint_without_its_certificate_frees_them_as_well(tmp_path: Path) -> None:
    """The file is read when the node starts, after all else was taken."""
    missing = str(tmp_path / "missing.pem")
    config = {"metrics.listener": "127.0.0.1:0", "metrics.ssl.keystore.location": missing}
    data_dir = str(tmp_path / "data")
    with pytest.raises(TlsError, match=r"missing\.pem"), Cluster(config=config, data_dir=data_dir):
        pass
    with Cluster(data_dir=data_dir) as cluster:
        assert cluster.is_running
