"""The keys of an OAuth provider: when they are fetched, and which tokens they verify meanwhile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla.security.sasl.jwt import JwtRules, parse_jwks
from ottla.security.sasl.mechanism import InvalidJwt
from ottla.server.system.provider_keys import ProviderKeys
from tests.security.tokens import KEY_ID, keys, signed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RULES = JwtRules()
REFRESH_MS = 5000


class Machine:
    """Time, timers and a worker that runs a job when the test lets it."""

    def __init__(self) -> None:
        self._now_ms = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.jobs: list[tuple[Callable[[], Any], Callable[..., None]]] = []

    def now_ms(self) -> int:
        """Return the time of day."""
        return int(time.time() * 1000)

    def monotonic_ms(self) -> int:
        """Return the time that the test has let pass."""
        return self._now_ms

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Set a timer."""
        self.timers.append((self._now_ms + round(seconds * 1000), callback))

    def run(self, job: Callable[[], Any], done: Callable[..., None]) -> None:
        """Queue a job."""
        self.jobs.append((job, done))

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, and run what is due."""
        end_ms = self._now_ms + duration_ms
        while due := [one for one in self.timers if one[0] <= end_ms]:
            first = min(due, key=lambda one: one[0])
            self.timers.remove(first)
            self._now_ms = first[0]
            first[1]()
        self._now_ms = end_ms

    def work(self) -> None:
        """Run the queued jobs."""
        while self.jobs:
            job, done = self.jobs.pop(0)
            try:
                result = job()
            except Exception as error:
                done(None, error)
            else:
                done(result, None)


@pytest.fixture
def machine() -> Machine:
    """Return a machine at time 0."""
    return Machine()


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """Return the provider's document, with one key."""
    path = tmp_path / "keys.json"
    path.write_bytes(keys())
    return path


def made(machine: Machine, document: Path, *, is_empty: bool = False) -> ProviderKeys:
    """Return the keys of a document."""
    return ProviderKeys(
        document.as_uri(),
        () if is_empty else parse_jwks(document.read_bytes()),
        run=machine.run,
        call_later=machine.call_later,
        clock=machine,
        refresh_ms=REFRESH_MS,
    )


def test_a_withdrawn_key_verifies_no_first_token(machine: Machine, document: Path) -> None:
    """Keys are renewed without a login that asks for them."""
    found = made(machine, document)
    assert found.verify(signed(), RULES).subject == "alice"
    document.write_bytes(keys("another"))
    machine.pass_ms(REFRESH_MS)
    machine.work()
    with pytest.raises(InvalidJwt):
        found.verify(signed(), RULES)


def test_keys_are_fetched_again_and_again(machine: Machine, document: Path) -> None:
    """One fetch at a time; a provider that fails leaves the last keys, and is asked again."""
    found = made(machine, document)
    machine.pass_ms(3 * REFRESH_MS)
    assert len(machine.jobs) == 1
    text = document.read_bytes()
    document.unlink()
    machine.work()
    assert found.verify(signed(), RULES).subject == "alice"
    document.write_bytes(text.replace(KEY_ID.encode(), b"two"))
    machine.pass_ms(REFRESH_MS)
    machine.work()
    with pytest.raises(InvalidJwt):
        found.verify(signed(), RULES)


def test_keys_of_a_changed_setting_are_fetched_by_a_worker(
    machine: Machine, document: Path
) -> None:
    """Until then no token is accepted; keys that are no longer used are fetched no more."""
    found = made(machine, document, is_empty=True)
    with pytest.raises(InvalidJwt):
        found.verify(signed(), RULES)
    assert len(machine.jobs) == 1
    machine.work()
    assert found.verify(signed(), RULES).subject == "alice"
    found.close()
    machine.pass_ms(10 * REFRESH_MS)
    assert not machine.jobs
    assert not machine.timers


def test_an_unknown_key_is_fetched_early(machine: Machine, document: Path) -> None:
    """At most once in ten seconds, whatever tokens come."""
    found = ProviderKeys(
        document.as_uri(),
        parse_jwks(keys("another")),
        run=machine.run,
        call_later=machine.call_later,
        clock=machine,
        refresh_ms=3_600_000,
    )
    for pause_ms, fetches in ((0, 0), (10_000, 1), (0, 1)):
        machine.pass_ms(pause_ms)
        with pytest.raises(InvalidJwt):
            found.verify(signed(), RULES)
        assert len(machine.jobs) == fetches
    machine.work()
    assert found.verify(signed(), RULES).subject == "alice"
