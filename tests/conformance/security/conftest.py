"""The two nodes with logins that the tests of this folder share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.security.secured import secured_sides

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.security.secured import SecuredSide


@pytest.fixture(scope="session")
def sides(
    kafka: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SecuredSide, SecuredSide]]:
    """Return Kafka's side and ours."""
    with secured_sides(kafka, tmp_path_factory.mktemp("secured")) as both:
        yield both
