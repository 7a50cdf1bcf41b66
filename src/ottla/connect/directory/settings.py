"""The settings of the sink.

Kafka: none; names as in connectors of object stores (`flush.size`, `rotate.interval.ms`).
"""

from __future__ import annotations

from typing import Final

from ottla.config.checks import NON_EMPTY, at_least, one_of
from ottla.config.definition import HIGH, LOW, MEDIUM, ConfigDefinitions, Type

SINK: Final = (
    ConfigDefinitions()
    .define(
        "directory",
        Type.STRING,
        doc="The directory of the files; each topic has a directory of its own below it.",
        check=NON_EMPTY,
        importance=HIGH,
    )
    .define(
        "format",
        Type.STRING,
        "jsonl",
        "The format of the files: csv, jsonl (a JSON value in each line) or parquet.",
        one_of("csv", "jsonl", "parquet"),
        importance=HIGH,
    )
    .define(
        "compression",
        Type.STRING,
        "none",
        "The compression: none or gzip. Parquet files have it inside and keep their name.",
        one_of("none", "gzip"),
        importance=MEDIUM,
    )
    .define(
        "flush.size",
        Type.INT,
        1000,
        "Maximum number of records of a file.",
        at_least(1),
        importance=HIGH,
    )
    .define(
        "rotate.bytes",
        Type.LONG,
        0,
        "Bytes of records, before compression, that complete a file; 0 for no limit.",
        at_least(0),
        importance=MEDIUM,
    )
    .define(
        "rotate.interval.ms",
        Type.LONG,
        60_000,
        "Time in milliseconds after the first record that completes a file; 0 for no limit.",
        at_least(0),
        importance=LOW,
    )
)
