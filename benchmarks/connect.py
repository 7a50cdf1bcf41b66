"""Connect: microseconds per record to read, transform and write JSON.

Hot path: ottla.connect.converters.json. Run: python benchmarks/connect.py. Figures are valid on an
idle machine only; the control is Python's own json module on the payload alone.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from ottla.connect.converters.json import JsonConverter
from ottla.connect.data import BOOLEAN, FLOAT64, INT64, STRING, TIMESTAMP, Struct, struct, timestamp
from ottla.connect.plugins import Plugins
from ottla.connect.records import SinkRecord

if TYPE_CHECKING:
    from collections.abc import Callable

ROUND_S = 0.3
SCHEMA = struct(
    "order",
    id=INT64,
    customer=STRING,
    note=STRING.as_optional(),
    price=FLOAT64,
    paid=BOOLEAN,
    at=TIMESTAMP,
)
VALUE = Struct(
    SCHEMA,
    id=123_456_789,
    customer="customer-17",
    price=12.5,
    paid=True,
    at=timestamp(1_600_000_000_123),
)


def measured_us(call: Callable[[], object]) -> float:
    """Return the shortest of five rounds."""
    best = float("inf")
    for _ in range(5):
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < ROUND_S:
            for _ in range(100):
                call()
            count += 100
        best = min(best, (time.perf_counter() - begin) / count)
    return best * 1e6


def cases() -> dict[str, Callable[[], object]]:
    """Return what is measured, by name."""
    found: dict[str, Callable[[], object]] = {}
    for enabled in ("true", "false"):
        converter = JsonConverter()
        converter.configure({"schemas.enable": enabled}, is_key=False)
        data = converter.from_connect("t", (), SCHEMA, VALUE)
        assert data is not None
        name = "with" if enabled == "true" else "without"
        found[f"write {name} schema"] = lambda it=converter: it.from_connect(  # type: ignore[misc]
            "t", (), SCHEMA, VALUE
        )
        found[f"read {name} schema"] = lambda it=converter, of=data: it.to_connect(  # type: ignore[misc]
            "t", (), of
        )
        text = data.decode()
    payload = json.loads(text)
    found["json.dumps of the payload"] = lambda: json.dumps(payload, ensure_ascii=False).encode()
    found["json.loads of the payload"] = lambda: json.loads(text)
    transform = Plugins().find("InsertField$Value", "transformation").create()
    transform.configure({"topic.field": "topic", "offset.field": "offset"})
    record = SinkRecord("orders", 0, value_schema=SCHEMA, value=VALUE)
    found["InsertField"] = lambda: transform.apply(record)
    return found


def main() -> None:
    """Print a line for each."""
    for name, call in cases().items():
        print(f"{name:<28}{measured_us(call):8.2f} us")


if __name__ == "__main__":
    main()
