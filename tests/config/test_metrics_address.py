"""Addresses of /metrics: of `metrics.listener` and of `ottla streams run --metrics`."""

from __future__ import annotations

import pytest

from ottla.config.metrics import MetricsAddress, read_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9405", ("127.0.0.1", 9405)),
        (":9405", ("", 9405)),
        ("host:0", ("host", 0)),
        ("[::1]:9405", ("::1", 9405)),
        ("http://0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    """A port alone is of this machine only; what is written is read again."""
    found = read_address(text)
    assert found == address
    assert read_address(str(found)) == MetricsAddress(*address)


@pytest.mark.parametrize("text", ["", "host", "host:", "host:http", "host:65536", "host:-1", "²"])
def test_other_texts_are_none(text: str) -> None:
    """Also a digit that is none of a number."""
    assert read_address(text) is None
