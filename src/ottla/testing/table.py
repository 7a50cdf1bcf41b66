"""Records as a table, for the texts of failed tests.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.clients.consumer.record_decoder import ConsumerRecord


def table(records: list[ConsumerRecord], limit: int = 50) -> str:
    """Show records by partition and offset, the first `limit` of them."""
    lines = [f"{'partition':>9} {'offset':>8}  {'key':<20} value  headers"]
    for record in records[:limit]:
        headers = dict(record.headers) or ""
        lines.append(
            f"{record.partition:>9} {record.offset:>8}  "
            f"{_short(record.key, 20):<20} {_short(record.value, 60)}  {headers}"
        )
    if len(records) > limit:
        lines.append(f"… and {len(records) - limit} more")
    return "\n".join(lines)


def _short(value: bytes | None, width: int) -> str:
    text = "null" if value is None else value.decode("utf-8", "backslashreplace")
    return text if len(text) <= width else text[: width - 1] + "…"
