"""The registry of APIs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.protocol import api_keys
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import Versions


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_every_key_has_its_classes(key: ApiKey) -> None:
    """Request and response are found by name, agree on key and versions, and are served."""
    request, response = api_keys.request_class(key), api_keys.response_class(key)
    assert request.__name__ == f"{key.api_name}Request"
    assert response.__name__ == f"{key.api_name}Response"
    assert request.message_key == response.message_key == key
    assert request.versions == response.versions
    assert request.api_listeners


@pytest.mark.parametrize("key", [-1, 4, 7, 93, 32767])
def test_other_keys_have_none(key: int) -> None:
    """Removed and unknown keys raise ValueError."""
    with pytest.raises(ValueError, match="is not a valid ApiKey"):
        api_keys.request_class(key)


def _count_of(listener: str) -> int:
    return sum(listener in api_keys.request_class(key).api_listeners for key in ApiKey)


def test_how_many_apis_each_listener_serves() -> None:
    """The numbers of Kafka 4.3."""
    assert len(ApiKey) == 89
    assert _count_of("broker") == 77
    assert _count_of("controller") == 41


@pytest.mark.parametrize(
    ("key", "served", "advertised"),
    [
        (ApiKey.PRODUCE, Versions(3, 13), Versions(0, 13)),
        (ApiKey.INIT_PRODUCER_ID, Versions(0, 5), Versions(0, 5)),
        (ApiKey.FETCH, Versions(4, 18), Versions(4, 18)),
    ],
)
def test_served_and_advertised_versions(
    key: ApiKey, served: Versions, advertised: Versions
) -> None:
    """They differ for Produce, and an unstable version is in neither."""
    assert api_keys.served_versions(key) == served
    assert api_keys.advertised_versions(key) == advertised


def test_unstable_versions_are_served_on_demand() -> None:
    """InitProducerId has a version for two-phase commit (KIP-939)."""
    served = api_keys.served_versions(ApiKey.INIT_PRODUCER_ID, unstable=True)
    assert served == Versions(0, 6)


def test_header_versions() -> None:
    """Flexible bodies have flexible headers, except the answer to ApiVersions."""
    assert api_keys.request_header_version(ApiKey.API_VERSIONS, 3) == 2
    assert api_keys.response_header_version(ApiKey.API_VERSIONS, 3) == 0
    assert api_keys.request_header_version(ApiKey.SASL_HANDSHAKE, 1) == 1
    assert api_keys.response_header_version(ApiKey.SASL_HANDSHAKE, 1) == 0
    assert api_keys.response_header_version(ApiKey.FETCH, 12) == 1


def test_the_registry_imports_no_api() -> None:
    """Message modules are imported when their key is first asked for."""
    script = "import sys, ottla.protocol.api_keys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert b"ottla.protocol.apis." not in done.stdout
