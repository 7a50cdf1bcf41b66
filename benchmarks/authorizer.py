"""What a decision of the authorizer costs with 100,000 entries.

    python benchmarks/authorizer.py

CPU time of the best of several runs: the load of all entries, a remembered decision, a fresh one.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from ottla.security.authorizer import StandardAuthorizer
from ottla.security.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRIES = 100_000
USERS = 1000
RUNS = 7
PAGE_KIB = 4
TOPIC, READ = ResourceType.TOPIC, Operation.READ


def resident_mib() -> float:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIB / 1024


def loaded() -> StandardAuthorizer:
    """Return an authorizer with as many literal as prefixed entries."""
    authorizer = StandardAuthorizer()
    authorizer.is_loaded = True
    kinds = (PatternType.LITERAL, PatternType.PREFIXED)
    for number in range(ENTRIES):
        user = f"User:u{number % USERS}"
        pattern = kinds[number % 2]
        entry = Acl(TOPIC, pattern, f"topic-{number}", user, "*", READ, Permission.ALLOW)
        authorizer.add(number, entry)
    return authorizer


def best_us(call: Callable[[], object], count: int) -> float:
    """Return the CPU time of a call."""
    found = []
    for _ in range(RUNS):
        begun_s = time.process_time()
        for _ in range(count):
            call()
        found.append((time.process_time() - begun_s) / count * 1e6)
    return min(found)


def main() -> None:
    """Print the figures."""
    logging.disable(logging.CRITICAL)
    before_mib, begun_s = resident_mib(), time.process_time()
    authorizer = loaded()
    took_s, grown_mib = time.process_time() - begun_s, resident_mib() - before_mib
    print(f"load of {ENTRIES} entries: {took_s:.2f} s, {grown_mib:.0f} MiB")
    user = Principal("User", "u5")
    remembered_us = best_us(
        lambda: authorizer.authorize(user, "host", READ, TOPIC, "topic-1005"), 20_000
    )
    fresh_us = best_us(
        lambda: authorizer.decide("User:u5", "host", READ, TOPIC, "topic-1005"), 5000
    )
    print(f"remembered decision: {remembered_us:.2f} µs; fresh decision: {fresh_us:.1f} µs")


if __name__ == "__main__":
    main()
