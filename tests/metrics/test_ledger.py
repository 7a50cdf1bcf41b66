"""The ledger of memory kept for clients, and the cache that is bounded in bytes."""

from __future__ import annotations

from random import Random

from ottla.metrics.ledger import ENTRY_BYTES, BoundedCache, Kept, Ledger, size_of_texts


def test_holders_are_listed_with_their_bounds() -> None:
    """Each with its name, entries and bytes."""
    ledger, cache = Ledger(), BoundedCache[str, bool](1 << 20)
    ledger.register("decisions", cache.bound_bytes, cache.measure)
    cache.keep("a", True, "a")
    assert ledger.kept() == [Kept("decisions", 1, ENTRY_BYTES + 1, 1 << 20)]


def test_a_cache_never_exceeds_its_bytes() -> None:
    """Whatever names come; long ones are not kept, and the newest result always is."""
    rng = Random(7)
    cache = BoundedCache[str, int](150_000)
    for number in range(2000):
        name = chr(rng.choice((97, 0x4E00))) * rng.randrange(120) + str(number)
        cache.keep(name, number, name)
        fits = size_of_texts(name) <= 150
        assert (cache.known.get(name) == number) is fits
        assert cache.used_bytes == sum(map(size_of_texts, cache.known)) <= cache.bound_bytes
    cache.clear()
    assert cache.measure() == (0, 0)
