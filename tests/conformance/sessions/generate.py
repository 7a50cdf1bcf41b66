"""Makes the steps of a session from a seed.

Kafka: none.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from ottla.protocol.api_keys import ApiKey
from ottla.server.requests.api import served_apis
from tests.conformance.sessions import (
    admin_steps,
    cluster_steps,
    group_steps,
    log_steps,
    transaction_steps,
)
from tests.conformance.sessions.choices import CLIENTS, TOPICS, Choices
from tests.conformance.sessions.steps import Step

STEP_COUNT = 300
_FAMILIES = (*group_steps.STEPS, *log_steps.STEPS, *admin_steps.STEPS, *cluster_steps.STEPS)
_WEIGHTS = [weight for weight, _, _ in _FAMILIES]
_ELSEWHERE = 0.3
_BROKERS, _STANDBY = ("follower", "other"), "standby"
_AWAITING_FOLLOWERS = {ApiKey.PRODUCE, ApiKey.DELETE_RECORDS}
_PATIENCE_MS = 10_000
_MAY_WAIT = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}


def generate(seed: int, count: int = STEP_COUNT, *, nodes: int = 1) -> list[Step]:
    """Return the session of a seed; the same one in every run.

    Of several nodes a part of the requests goes to one that does not lead.
    """
    steps = _session(seed, count)
    return steps if nodes == 1 else _spread(steps, Random(f"nodes of {seed}"))


def _spread(steps: list[Step], rng: Random) -> list[Step]:
    """Send a part of the steps to followers, brokers without replicas and standby controllers."""
    first = len(_first_steps())
    return [
        replace(_patient(step), node=_place(step, rng))
        if step.number >= first and rng.random() < _ELSEWHERE
        else _patient(step)
        for step in steps
    ]


def _patient(step: Step) -> Step:
    """Wait for followers: whether they have it within a millisecond is chance."""
    if step.key not in _AWAITING_FOLLOWERS:
        return step
    return replace(step, fields=step.fields | {"timeout_ms": _PATIENCE_MS})


def _place(step: Step, rng: Random) -> str:
    served = served_apis("controller").get(step.key)
    is_served = served is not None and served.lowest <= step.version <= served.highest
    return rng.choice((*_BROKERS, _STANDBY) if is_served else _BROKERS)


def _session(seed: int, count: int) -> list[Step]:
    rng = Random(seed)
    pick = Choices(rng)
    steps = _first_steps()
    families, weights = list(_FAMILIES), _WEIGHTS
    if seed >= transaction_steps.TRANSACTIONAL_FROM:
        families += transaction_steps.STEPS
        weights = [weight for weight, _, _ in families]
    while len(steps) < count:
        (_, key, fields) = rng.choices(families, weights)[0]
        version = pick.version(key)
        made = fields(pick, version)
        client = rng.randrange(CLIENTS)
        slot = made.pop("slot", None)
        if slot is not None:
            client = slot
        elif key == ApiKey.INIT_PRODUCER_ID:
            client = rng.randrange(3)
        steps.append(_step(len(steps), client, key, version, made))
    return steps


def _first_steps() -> list[Step]:
    """Create two topics and two producers, so that few later steps meet nothing."""
    topics = [
        {"name": name, "num_partitions": count, "replication_factor": 1}
        for name, count in zip(TOPICS, (1, 3), strict=False)
    ]
    created = {"topics": topics, "timeout_ms": 10_000}
    producer = {"transactional_id": None, "transaction_timeout_ms": 1000}
    return [
        _step(0, 0, ApiKey.CREATE_TOPICS, 7, created),
        _step(1, 0, ApiKey.INIT_PRODUCER_ID, 4, producer),
        _step(2, 1, ApiKey.INIT_PRODUCER_ID, 4, producer),
    ]


def _step(number: int, client: int, key: ApiKey, version: int, fields: dict[str, Any]) -> Step:
    return Step(
        number=number,
        client=client,
        key=key,
        version=version,
        fields=fields,
        may_wait=key in _MAY_WAIT or fields.get("max_wait_ms", 0) > 0,
        is_silent=key == ApiKey.PRODUCE and fields["acks"] == 0,
    )
