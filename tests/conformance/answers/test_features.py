"""Changes of feature levels on real Kafka 4.3.0 and of Ottla: the same answers.

Kafka: ControllerApis.handleUpdateFeatures, FeatureControlManager.

Features that Ottla does not have are finalised there and cannot be compared; that they are refused
is tested in tests/server/node/test_setting_answers.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.protocol.apis.update_features import UpdateFeaturesRequest
from tests.conformance.pair import Pair, running_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
ELR, METADATA, KRAFT = "eligible.leader.replicas.version", "metadata.version", "kraft.version"
UNKNOWN, UPGRADE, SAFE, UNSAFE = range(4)


@pytest.fixture(scope="module")
def pair(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Run both."""
    with running_pair(kafka, tmp_path_factory.mktemp("features")) as pair:
        yield pair


def _update(*updates: tuple[str, int, int], only_check: bool = True) -> UpdateFeaturesRequest:
    struct = UpdateFeaturesRequest.FeatureUpdateKey
    return UpdateFeaturesRequest(
        feature_updates=[
            struct(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
        validate_only=only_check,
    )


@pytest.mark.parametrize("kind", [UNKNOWN, UPGRADE, SAFE, UNSAFE, 9])
@pytest.mark.parametrize("level", [-1, 0, 1, 2, 6, 7, 29, 30, 31])
@pytest.mark.parametrize("name", [ELR, METADATA, KRAFT, "nosuch"])
def test_checked_updates(pair: Pair, name: str, level: int, kind: int) -> None:
    """Each level of each feature by each kind of update, in both versions that can only check."""
    pair.compare(_update((name, level, kind)), versions=range(1, 3))


def test_updates_of_the_first_version(pair: Pair) -> None:
    """Version 0 knows neither checks nor kinds, but whether a downgrade is allowed."""
    for name, level, allowed in ((ELR, 1, False), (ELR, 2, True), (METADATA, 29, True)):
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature=name, max_version_level=level, allow_downgrade=allowed
        )
        pair.compare(UpdateFeaturesRequest(feature_updates=[update]), versions=range(1))


def test_several_updates_at_once(pair: Pair) -> None:
    """All or none; nothing at all; one feature twice; then a real step down and up."""
    pair.compare(
        _update(),
        _update((ELR, 1, UPGRADE), (METADATA, 30, UPGRADE)),
        _update((ELR, 0, SAFE), ("nosuch", 1, UPGRADE)),
        _update((ELR, 0, SAFE), (ELR, 1, UPGRADE)),
        _update((ELR, 0, SAFE), only_check=False),
        _update((ELR, 0, UPGRADE), only_check=False),
        _update((ELR, 1, SAFE), only_check=False),
        _update((ELR, 1, UPGRADE), only_check=False),
        _update((ELR, 1, UPGRADE), only_check=False),
    )
