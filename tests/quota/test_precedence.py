"""The eight levels of users and client ids."""

from __future__ import annotations

import itertools

import pytest

from ottla.quota.meters import ClientLimits, ClientQuotaEntity

Entity = tuple[tuple[str, str | None], ...]

# From the strongest to the weakest, with the quota entity that applies to ann's app.
LEVELS: list[tuple[Entity, ClientQuotaEntity]] = [
    ((("client-id", "app"), ("user", "ann")), ClientQuotaEntity("ann", "app")),
    ((("client-id", None), ("user", "ann")), ClientQuotaEntity("ann", "app")),
    ((("user", "ann"),), ClientQuotaEntity("ann", "")),
    ((("client-id", "app"), ("user", None)), ClientQuotaEntity("ann", "app")),
    ((("client-id", None), ("user", None)), ClientQuotaEntity("ann", "app")),
    ((("user", None),), ClientQuotaEntity("ann", "")),
    ((("client-id", "app"),), ClientQuotaEntity("", "app")),
    ((("client-id", None),), ClientQuotaEntity("", "app")),
]
OTHERS: list[Entity] = [
    (("client-id", "other"), ("user", "ann")),
    (("client-id", "app"), ("user", "bob")),
    (("user", "bob"),),
    (("client-id", "other"),),
    (("ip", "10.0.0.1"),),
]


def _limits(*levels: int, others: bool = False) -> ClientLimits:
    limits = ClientLimits()
    for level in levels:
        limits.set_limit(LEVELS[level][0], float(level))
    for entity in OTHERS if others else ():
        limits.set_limit(entity, 99.0)
    return limits


@pytest.mark.parametrize(
    "levels",
    [
        levels
        for count in range(1, len(LEVELS) + 1)
        for levels in itertools.combinations(range(len(LEVELS)), count)
    ],
)
def test_the_strongest_level_that_is_set_wins(levels: tuple[int, ...]) -> None:
    """For every combination of levels, also with limits of other clients."""
    for limits in (_limits(*levels), _limits(*levels, others=True)):
        entity = limits.entity_of("ann", "app")
        assert entity == LEVELS[levels[0]][1]
        assert limits.limit(entity) == float(levels[0])


def test_who_is_not_named_is_not_limited() -> None:
    """Limits of other entities do not apply, for every entity type."""
    for entity in OTHERS:
        limits = ClientLimits()
        limits.set_limit(entity, 1.0)
        assert limits.limit(limits.entity_of("ann", "app")) is None


def test_a_user_limit_beats_the_default_pairs() -> None:
    """A user's own limit stands above every level of the default user, though it names no id."""
    limits = _limits(2, 3, 4, 5)
    assert (
        limits.entity_of("ann", "app")
        == limits.entity_of("ann", "zip")
        == ClientQuotaEntity("ann", "")
    )


def test_a_client_without_an_id_falls_back() -> None:
    """It has the limit of its user, and no part in the limits of client ids."""
    limits = ClientLimits()
    limits.set_limit((("client-id", None),), 1.0)
    assert limits.limit(limits.entity_of("ann", "")) is None
    limits.set_limit((("user", None),), 2.0)
    assert limits.limit(limits.entity_of("ann", "")) == 2.0


def test_removing_the_last_limit_switches_off() -> None:
    """Levels come and go; an address is none of them."""
    limits = _limits(0, 7)
    assert limits
    assert limits.set_limit(LEVELS[0][0], None)
    assert limits.limit(limits.entity_of("ann", "app")) == 7.0
    assert limits.set_limit(LEVELS[7][0], None)
    assert not limits.set_limit(OTHERS[4], 5.0)
    assert not limits
