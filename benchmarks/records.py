"""Cost per record: validate, decode, build, convert to and from columns, codecs, checksum.

Run: python benchmarks/records.py; the first line states whether the scan is compiled.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.records import scan
from ottla.records.batch import RecordBatch
from ottla.records.builder import encode_batch
from ottla.records.columns import InputColumn, encode_columns, parse_columns
from ottla.records.compression import Compression, compress, decompress
from ottla.records.crc32c import crc32c
from ottla.records.validation_rules import ValidationRules
from ottla.records.validator import validate

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = 5_000
RULES = ValidationRules()


def words(index: int) -> bytes:
    """Return 100 bytes with the compression ratio of JSON."""
    text = f'{{"id":{index},"user":"user{index % 977}","amount":{index * 7919 % 100003}}}'
    return text.encode().ljust(100, b" ")[:100]


def measure(name: str, unit: int, body: Callable[[], Any], *, what: str = "record") -> None:
    """Print the best of several runs of at least 0.1 s, per unit."""
    body()
    best = float("inf")
    for _ in range(5):
        calls, started = 0, time.perf_counter()
        while time.perf_counter() - started < 0.1:
            body()
            calls += 1
        best = min(best, (time.perf_counter() - started) / calls)
    rate = unit / best
    print(f"{name:44s} {best / unit * 1e9:10.1f} ns/{what:7s} {rate / 1e6:9.2f} M {what}s/s")


def rewound(batch: memoryview) -> Callable[[], Any]:
    """Return a function that resets a batch's offset and validates it."""

    def body() -> Any:
        batch[:8] = bytes(8)
        return validate(memoryview(batch), 77, 1, 5000, RULES)

    return body


def consume(batch: bytearray) -> None:
    """Parse a batch into columns."""
    for _ in parse_columns(batch):
        pass


def produce(
    timestamps: bytearray, keys: InputColumn, values: InputColumn, codec: Compression
) -> None:
    """Encode columns into batches."""
    for _ in encode_columns(
        RECORDS, timestamps=timestamps, keys=keys, values=values, compression=codec
    ):
        pass


def main() -> None:
    """Print all figures."""
    print("scan:", scan.__file__)
    rows = [(1000 + index, b"key%d" % index, words(index), ()) for index in range(RECORDS)]
    batches = {codec: encode_batch(rows, compression=codec) for codec in Compression}
    one = memoryview(encode_batch(rows[:1]))
    measure("validate, batch of one", 1, rewound(one), what="batch")
    for codec, batch in batches.items():
        measure(f"validate, {codec.config_name}", RECORDS, rewound(memoryview(batch)))
    plain = batches[Compression.NONE]
    measure("decode to Record tuples", RECORDS, lambda: RecordBatch(plain).records())
    measure("encode_batch of tuples", RECORDS, lambda: encode_batch(rows))
    for codec, batch in batches.items():
        measure(f"parse_columns, {codec.config_name}", RECORDS, partial(consume, batch))
    columns = next(parse_columns(plain))
    assert columns.keys is not None
    assert columns.values is not None
    keys = InputColumn(columns.keys.data, columns.keys.offsets, columns.keys.validity)
    values = InputColumn(columns.values.data, columns.values.offsets, columns.values.validity)
    for codec in Compression:
        measure(
            f"encode_columns, {codec.config_name}",
            RECORDS,
            partial(produce, columns.timestamps, keys, values, codec),
        )
    payload = bytes(memoryview(plain)[61:])
    for codec in Compression:
        packed = compress(codec, payload)
        print(f"{codec.config_name}: {len(payload)} -> {len(packed)} bytes")
        measure("  compress", len(payload), partial(compress, codec, payload), what="byte")
        measure("  decompress", len(payload), partial(decompress, codec, packed), what="byte")
    blob = memoryview(bytearray(os.urandom(1 << 20)))
    measure("crc32c, google-crc32c", len(blob), lambda: crc32c(blob), what="byte")
    measure("crc32c, Ottla's tables", len(blob), lambda: scan.crc32c(blob), what="byte")


if __name__ == "__main__":
    main()
