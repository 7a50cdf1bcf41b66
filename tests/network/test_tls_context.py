"""Keys that are no files: from settings and from the stores of Java."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.network.tls_context import Store, TlsError, TlsSettings, server_context
from tests.server.security.certificates import PASSWORD, Authority, Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_TRUST = Store("PEM", None, None)


@pytest.fixture(scope="module")
def pair() -> Pair:
    """Return a key and its certificate."""
    return Authority().issue("node")


@pytest.fixture
def stores(pair: Pair, tmp_path: Path) -> list[Store]:
    """Return what OpenSSL does not read itself: texts, and a store of Java's."""
    return [
        Store("PEM", None, None, pair.key_pem, pair.certificate_pem),
        Store("PKCS12", pair.write_pkcs12(tmp_path / "a.p12"), PASSWORD),
    ]


@pytest.fixture
def no_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make every temporary file fail, as on a read-only root file system."""

    def fails(*_arguments: Any, **_options: Any) -> Any:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", fails)
    yield
    monkeypatch.undo()


@pytest.mark.skipif(sys.platform != "linux", reason="files of memory are Linux's")
@pytest.mark.usefixtures("no_temporary_directory")
def test_a_key_passes_through_no_file(stores: list[Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may have no writable directory, and a disk may keep what was removed."""
    for store in stores:
        server_context(TlsSettings(store, NO_TRUST, (), ()))
    left = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # other threads close theirs
            left.append(str(descriptor.readlink()))
    assert not [one for one in left if "ottla-tls" in one]


def test_elsewhere_it_is_a_temporary_file(
    stores: list[Store], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Which is removed when it has been read, also when it is invalid."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    for store in stores:
        server_context(TlsSettings(store, NO_TRUST, (), ()))
    damaged = stores[0]._replace(certificates="-----BEGIN CERTIFICATE-----\nx\n")
    with pytest.raises(TlsError, match="the key store's texts"):
        server_context(TlsSettings(damaged, NO_TRUST, (), ()))
    assert list((tmp_path / "temporary").iterdir()) == []
