"""Quotas on a running node: set, described, held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.clients.admin.quotas import ANY_NAME, QuotaChange
from ottla.errors import ErrorCode
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run one node for all tests here; each limits clients of its own."""
    with Cluster() as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[ottla.Admin]:
    """Return an admin client of that node."""
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as client:
        yield client


def test_quotas_are_altered_and_described(admin: ottla.Admin) -> None:
    """Two keys of one entity, one of them removed later; a default; a refusal beside them."""
    app = {"user": "ann", "client-id": "app"}
    key = frozenset(app.items())
    limits = {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}
    result = admin.alter_client_quotas(
        [
            QuotaChange(app, limits),
            QuotaChange({"user": None, "client-id": "app"}, {"request_percentage": 50.0}),
            QuotaChange({"user": "ann"}, {"no_such_key": 1.0}),
        ]
    )
    assert result[key] is None
    assert result[frozenset({("user", "ann")})].code == ErrorCode.INVALID_REQUEST
    assert admin.describe_client_quotas({"user": "ann"}) == {key: limits}
    assert len(admin.describe_client_quotas({"user": ANY_NAME, "client-id": "app"})) == 2
    admin.alter_client_quotas([QuotaChange(app, {"consumer_byte_rate": None})])
    assert admin.describe_client_quotas({"user": "ann"}) == {key: {"producer_byte_rate": 1000.0}}


def test_a_trial_changes_nothing(admin: ottla.Admin) -> None:
    """With validate_only the answer is the same and nothing is stored."""
    entity = {"client-id": "trial"}
    change = QuotaChange(entity, {"producer_byte_rate": 1.0})
    assert admin.alter_client_quotas([change], validate_only=True) == {
        frozenset(entity.items()): None
    }
    assert admin.describe_client_quotas(entity) == {}


def test_partitions_made_and_removed_are_charged(cluster: Cluster, admin: ottla.Admin) -> None:
    """An overdrawn bucket refuses topics one by one and says for how long to wait."""
    entity = {"client-id": "mutator"}
    admin.alter_client_quotas([QuotaChange(entity, {"controller_mutation_rate": 0.01})])
    with ottla.Admin(bootstrap_servers=cluster.bootstrap, client_id="mutator") as mutator:
        topic = CreateTopicsRequest.CreatableTopic
        request = CreateTopicsRequest(
            topics=[
                topic(name=name, num_partitions=3, replication_factor=1, assignments=[], configs=[])
                for name in ("paid", "unpaid")
            ]
        )
        answer = mutator.request(request)
        codes = {one.name: one.error_code for one in answer.topics}
        assert codes == {"paid": 0, "unpaid": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        assert answer.throttle_time_ms > 100_000  # 3 less 0.11 tokens, at 0.01 a second
    assert "unpaid" not in admin.list_topics()
    admin.delete_topics(["paid"])
