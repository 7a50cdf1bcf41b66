#!/usr/bin/env python3
"""Decode mutated messages of every class and version with the installed codec and the other one.

    scripts/fuzz_codec.py --messages 10000000 --seed 1

Each message is a random valid one that is truncated or spliced, or has a flipped byte or a false
length. Decoding must return an object or raise CorruptMessage; memory must stay bounded. Every
hundredth message is also decoded by the other codec (compiled walker or generated function), which
must agree. A failure prints class, version and bytes.
"""

from __future__ import annotations

import argparse
import json
import resource
import struct
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ottla.errors import CorruptMessage
from ottla.protocol import codec, walker
from ottla.protocol.plans import plan_of
from tests.protocol.messages import message_classes, random_message

if TYPE_CHECKING:
    from ottla.protocol.schema import Struct

MUTANTS = 200
"""Mutated copies of one valid message."""
COMPARED = 100


class Kind(NamedTuple):
    """A class at a version."""

    cls: type[Struct]
    version: int


def mutated(data: bytes, rng: Random) -> bytes:
    """Return the bytes with one mutation."""
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
    if kind == 2:
        return data[:at] + bytes((rng.randrange(256),)) + data[at + 1 :]
    return data[:at] + rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f")) + data[at + 4 :]


def decoded(kind: Kind, data: bytes) -> Any:
    """Decode with the installed codec; None if it is refused."""
    try:
        return codec.decode(kind.cls, kind.version, data)
    except CorruptMessage:
        return None


def decoded_otherwise(kind: Kind, data: bytes) -> Any:
    """Decode with the codec that this installation does not use."""
    view = memoryview(data)
    try:
        if codec.WALKS:
            return codec.write_decoder(kind.cls, kind.version)(view, 0, len(view))[0]
        return walker.read(plan_of(kind.cls, kind.version), view, 0, len(view))[0]
    except (CorruptMessage, IndexError, struct.error):
        return None


def run(messages: int, seed: int) -> dict[str, Any]:
    """Decode this number of messages; raise on the first violation."""
    rng, began = Random(seed), time.monotonic()
    kinds = [
        Kind(cls, version)
        for _, cls in sorted(message_classes().items())
        for version in range(cls.versions.lowest, cls.versions.highest + 1)
    ]
    counts = {"messages": 0, "refused": 0, "read": 0, "compared": 0}
    while counts["messages"] < messages:
        kind = rng.choice(kinds)
        sound = codec.to_bytes(random_message(kind.cls, kind.version, rng), kind.version)
        for _ in range(MUTANTS):
            one(kind, mutated(sound, rng), counts)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = round(time.monotonic() - began, 1)
    return {"seed": seed, **counts, "peak_memory_mib": round(peak_mib, 1), "seconds": seconds}


def one(kind: Kind, data: bytes, counts: dict[str, int]) -> None:
    """Decode one message and count."""
    try:
        message = decoded(kind, data)
        counts["messages"] += 1
        counts["refused" if message is None else "read"] += 1
        if counts["messages"] % COMPARED == 0:
            counts["compared"] += 1
            other = decoded_otherwise(kind, data)
            if repr(message) != repr(other):  # a NaN does not equal itself
                raise AssertionError(f"{message!r} by one codec, {other!r} by the other")
    except BaseException:
        print(kind.cls.__name__, kind.version, data.hex(), file=sys.stderr)
        raise


def main() -> None:
    """Run and print the counts as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(json.dumps(run(options.messages, options.seed), indent=1))


if __name__ == "__main__":
    main()
