"""Exactly-once enrichment: each flight with what is known of its plane, once, whatever fails.

Columns choose and key the flights at Spark's own speed; the join is with a table of changes.

ottla streams run examples/streams_enriched.py --bootstrap-server localhost:9092 --checkpoint DIR
"""

from __future__ import annotations

from typing import Any

from ottla.streams import Consumed, Serdes, StreamsBuilder, StreamsConfig, expr

FLIGHT = Serdes.json(schema="flight STRING, tailnum STRING, origin STRING, dest STRING")


def with_plane(flight: dict[str, Any], plane: dict[str, Any] | None) -> dict[str, Any]:
    """Return a flight with its plane's maker and seats."""
    known = plane or {"manufacturer": None, "seats": None}
    return {**flight, "maker": known["manufacturer"], "seats": known["seats"]}


builder = StreamsBuilder(StreamsConfig(application_id="flights-with-planes"))
planes = builder.table("planes")
(
    builder.stream("flights", consumed=Consumed(value=FLIGHT))
    .filter(expr("value.tailnum IS NOT NULL"))  # cancelled before a plane was chosen
    .select_key(expr("value.tailnum"))
    .left_join(planes, with_plane)
    .to("flights-with-planes")
)
