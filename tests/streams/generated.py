"""Random topologies and inputs, the same for a seed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.streams.cases import Input, Step

KEYS = ("a", "b", "c")


class Generator:
    """Makes one case."""

    def __init__(self, seed: int, kind: str) -> None:
        self.random = Random(seed)
        self.kind = kind
        self.steps: list[Step] = []

    def step(self, op: str, **fields: Any) -> str:
        """Add a step and return its id."""
        name = f"x{len(self.steps)}"
        self.steps.append({"id": name, "op": op, **fields})
        return name

    def stream(self, topic: str) -> str:
        """Return a stream after some operators without state."""
        it = self.step("stream", topic=topic)
        kinds = ["filter", "map_values", "select_key", "flat_map_values", "map", "branch"]
        kinds += ["peek", "filter_not", "flat_map"]
        for _ in range(self.random.choice((0, 0, 1, 2))):
            it = self.step(self.random.choice((*kinds, "repartition")), of=it)
        return it

    def keyed(self, topic: str) -> str:
        """Return a stream whose key is that of the topic, or a letter of the value."""
        it = self.step("stream", topic=topic)
        return self.step("select_key", of=it) if self.random.random() < 0.3 else it

    def table(self, topic: str) -> str:
        """Return a table after some operators."""
        random = self.random
        store = {"store": f"{topic}-store"} if random.random() < 0.5 else {}
        it = self.step("table", topic=topic, **store)
        for number in range(random.choice((0, 0, 1, 2))):
            store = {"store": f"{topic}-store{number}"} if random.random() < 0.5 else {}
            ops = ("table_filter", "table_map_values", "table_transform")
            it = self.step(random.choice(ops), of=it, **store)
        return it

    def grouped(self, topic: str = "in0") -> str:
        """Return a grouped stream."""
        kind = self.random.choice(("group_by_key", "group_by"))
        return self.step(kind, of=self.stream(topic))

    def write(self, it: str, *, windowed: bool = False) -> None:
        """Write a table to the output."""
        it = self.step("windowed_to_stream" if windowed else "to_stream", of=it)
        self.steps.append({"op": "to", "of": it, "topic": "out"})

    def any_join(self, *kinds: str) -> dict[str, str]:
        """Return a kind of join."""
        return {"kind": self.random.choice(kinds or ("inner", "left", "outer"))}

    def make(self) -> list[Step]:
        """Return the steps."""
        getattr(self, self.kind)()
        return self.steps

    def stateless(self) -> None:
        """Add operators without state, merged."""
        it = self.step("merge", of=self.stream("in0"), **{"with": self.stream("in1")})
        self.steps.append({"op": "to", "of": it, "topic": "out"})

    def aggregation(self) -> None:
        """Add a grouped stream without windows."""
        op = self.random.choice(("count", "reduce", "aggregate"))
        self.write(self.step(op, of=self.grouped()))

    def windows(self) -> None:
        """Add windows of each kind, with results on update, on close, or suppressed."""
        random = self.random
        op = random.choice(("time_windows", "sliding_windows", "session_windows"))
        size = random.choice((5, 10, 20))
        fields = {"size": size, "grace": random.choice((0, 5, 20))}
        if op == "time_windows":
            fields["advance"] = random.choice((size, max(1, size // 2)))
        close = random.random() < 0.3
        it = self.step(op, of=self.grouped(), close=close, **fields)
        if not close and random.random() < 0.4:
            it = self.step("suppress", of=it)
        self.write(it, windowed=True)

    def tables(self) -> None:
        """Add tables, filtered, mapped and regrouped."""
        it = self.table("in0")
        if self.random.random() < 0.6:
            it = self.step("table_group_by", of=it)
            it = self.step(
                self.random.choice(("table_aggregate", "table_count", "table_reduce")), of=it
            )
        self.write(it)

    def suppressed_table(self) -> None:
        """Add a table whose updates are held back for a time."""
        it = self.step("aggregate", of=self.grouped())
        size, records = self.random.choice((5, 20)), self.random.choice((1, 2, 100))
        self.write(self.step("suppress_time", of=it, size=size, records=records))

    def suppressed_bytes(self) -> None:
        """Add a table whose updates are held back until a number of bytes is held."""
        grouped = self.step("group_by_key", of=self.step("stream", topic="in0"))
        it = self.step("aggregate", of=grouped)
        limit = self.random.choice((50, 100, 150))
        self.write(self.step("suppress_time", of=it, size=1000, bytes=limit))

    def suppressed_join(self) -> None:
        """Add a join with a table whose updates are held back: it has the rows before them."""
        size, records = self.random.choice((5, 20)), self.random.choice((1, 2, 100))
        it = self.step("suppress_time", of=self.table("in1"), size=size, records=records)
        sides = {"of": self.step("stream", topic="in0"), "with": it}
        it = self.step("stream_table_join", **sides, **self.any_join("inner", "left"))
        self.steps.append({"op": "to", "of": it, "topic": "out"})

    def stream_join(self) -> None:
        """Add a join of two streams."""
        random = self.random
        fields = {name: random.choice((0, 5, 15)) for name in ("before", "after", "grace")}
        sides = {"of": self.keyed("in0"), "with": self.keyed("in1")}
        it = self.step("stream_join", **sides, **self.any_join(), **fields)
        self.steps.append({"op": "to", "of": it, "topic": "out"})

    def stream_table_join(self) -> None:
        """Add a join of a stream with a table."""
        sides = {"of": self.keyed("in0"), "with": self.table("in1")}
        it = self.step("stream_table_join", **sides, **self.any_join("inner", "left"))
        self.steps.append({"op": "to", "of": it, "topic": "out"})

    def global_join(self) -> None:
        """Add a join of a stream with a global table."""
        sides = {"of": self.keyed("in0"), "with": self.step("global_table", topic="in1")}
        it = self.step("global_join", **sides, **self.any_join("inner", "left"))
        self.steps.append({"op": "to", "of": it, "topic": "out"})

    def table_join(self) -> None:
        """Add a join of two tables, and what may follow."""
        sides = {"of": self.table("in0"), "with": self.table("in1")}
        store = {"store": "joined"} if self.random.random() < 0.4 else {}
        it = self.step("table_join", **sides, **self.any_join(), **store)
        if self.random.random() < 0.4:
            it = self.step("table_filter", of=it)
        if self.random.random() < 0.3:
            it = self.step("table_group_by", of=it)
            it = self.step("table_aggregate", of=it)
        self.write(it)

    def foreign_key_join(self) -> None:
        """Add a join of two tables by a foreign key."""
        sides = {"of": self.table("in0"), "with": self.table("in1")}
        it = self.step("foreign_key_join", **sides, **self.any_join("inner", "left"))
        self.write(it)

    def cogroup(self) -> None:
        """Add an aggregation of two streams."""
        sides = {"of": self.grouped("in0"), "with": self.grouped("in1")}
        self.write(self.step("cogroup", **sides))

    def to_table(self) -> None:
        """Add a stream as a table, joined with another stream."""
        table = self.step("to_table", of=self.stream("in1"))
        sides = {"of": self.keyed("in0"), "with": table}
        it = self.step("stream_table_join", **sides, **self.any_join("inner", "left"))
        self.steps.append({"op": "to", "of": it, "topic": "out"})

    def versioned(self, topic: str) -> str:
        """Return a table whose store has a history."""
        random = self.random
        fields: dict[str, Any] = {"store": f"{topic}-versions"}
        fields["history"] = random.choice((0, 10, 50))
        if random.random() < 0.5:
            it = self.step("table", topic=topic, **fields)
        else:
            it = self.step("to_table", of=self.step("stream", topic=topic), **fields)
        if random.random() < 0.3:
            op = random.choice(("table_filter", "table_map_values"))
            fields["store"] += "-2"
            it = self.step(op, of=it, **(fields if random.random() < 0.5 else {}))
        return it

    def versioned_join(self) -> None:
        """Add a join of a stream with a table that has a history."""
        sides = {"of": self.keyed("in0"), "with": self.versioned("in1")}
        history = next(one["history"] for one in self.steps if "history" in one)
        waits = (
            {"waits": self.random.choice((0, history // 2))} if self.random.random() < 0.5 else {}
        )
        it = self.step("stream_table_join", **sides, **self.any_join("inner", "left"), **waits)
        self.steps.append({"op": "to", "of": it, "topic": "out"})

    def versioned_tables(self) -> None:
        """Add joins and aggregations of tables that have a history."""
        random = self.random
        it = self.versioned("in0")
        if random.random() < 0.7:
            other = self.versioned("in1") if random.random() < 0.7 else self.table("in1")
            op = random.choice(("table_join", "foreign_key_join"))
            kinds = ("inner", "left", "outer") if op == "table_join" else ("inner", "left")
            it = self.step(op, of=it, **{"with": other}, **self.any_join(*kinds))
        elif random.random() < 0.5:
            it = self.step("table_group_by", of=it)
            it = self.step(random.choice(("table_aggregate", "table_count")), of=it)
        self.write(it)

    def versioned_aggregation(self) -> None:
        """Add an aggregation of a stream into a store that has a history."""
        op = self.random.choice(("reduce", "aggregate"))
        history = self.random.choice((0, 10, 50))
        self.write(self.step(op, of=self.grouped(), store="versions", history=history))

    def processors(self) -> None:
        """Add processors with a store and a punctuation."""
        # not after a repartition: Kafka's test driver makes its task one with that before
        it = self.step(self.random.choice(("map", "flat_map", "filter")), of=self.keyed("in0"))
        start = self.random.choice((0, 3, 45, 500))
        fields = self.random.choice(({}, {"start": start}, {"start": start, "again": True}))
        it = self.step("process", of=it, reverse=self.random.random() < 0.5, **fields)
        if self.random.random() < 0.5:
            it = self.step("process_values", of=it)
        self.steps.append({"op": "to", "of": it, "topic": "out"})

    def lookups(self) -> None:
        """Add a processor that reads a store which another topic fills."""
        it = self.step("stream", topic="in0")
        self.write_stream(self.step("lookup", of=it, topic="in1"))

    def same_topic(self) -> None:
        """Add two streams of one topic."""
        it = self.step("merge", of=self.stream("in0"), **{"with": self.stream("in0")})
        self.write_stream(it)

    def chosen_partitions(self) -> None:
        """Add partitioners, which drop the records of a key, at an output and within a join."""
        drops = {"drops": self.random.choice("abc")}
        if self.random.random() < 0.5:
            by_record = self.random.random() < 0.5
            self.write_stream(self.keyed("in0"), **drops, by_record=by_record)
            return
        sides = {"of": self.table("in0"), "with": self.table("in1")}
        other = self.random.random() < 0.5
        kind = self.any_join("inner", "left")
        self.write(self.step("foreign_key_join", other=other, **sides, **kind, **drops))

    def write_stream(self, it: str, **fields: Any) -> None:
        """Write a stream to the output."""
        self.steps.append({"op": "to", "of": it, "topic": "out", **fields})

    def transformed(self) -> None:
        """Add tables whose values are transformed."""
        store = {"store": "transformed"} if self.random.random() < 0.5 else {}
        it = self.step("table_transform", of=self.table("in0"), **store)
        if self.random.random() < 0.5:
            it = self.step("table_filter", of=it)
        if self.random.random() < 0.5:
            it = self.step("table_group_by", of=it)
            it = self.step("table_aggregate", of=it)
        self.write(it)

    def other_windows(self) -> None:
        """Add windows of several streams, and the window without an end."""
        random = self.random
        if random.random() < 0.3:
            grouped = self.grouped()
            start = random.choice((0, 30))
            it = self.step("unlimited_windows", of=grouped, start=start, close=False)
        else:
            fields = {"size": random.choice((5, 20)), "grace": random.choice((0, 5))}
            kind = random.choice(("time", "sliding", "session"))
            sides = {"of": self.grouped("in0"), "with": self.grouped("in1")}
            it = self.step("cogroup_windows", kind=kind, advance=5, **sides, **fields)
        if random.random() < 0.3 and self.steps[-1]["op"] == "cogroup_windows":
            it = self.step("suppress", of=it)
        self.write(it, windowed=True)

    def two_joins(self) -> None:
        """Add joins of one stream with two tables, and a grouping of it."""
        stream = self.keyed("in0")
        table, other = self.table("in1"), self.step("to_table", of=self.stream("in2"))
        kinds = ("inner", "left")
        joined = [
            self.step("stream_table_join", of=stream, **{"with": one}, **self.any_join(*kinds))
            for one in (table, other)
        ]
        it = self.step("merge", of=joined[0], **{"with": joined[1]})
        self.steps.append({"op": "to", "of": it, "topic": "out"})
        if self.random.random() < 0.5:
            grouped = self.step("group_by_key", of=stream)
            self.write(self.step("aggregate", of=grouped))

    def versioned_results(self) -> None:
        """Add a table that an aggregation or a join has made with a history, and its join."""
        random = self.random
        fields = {"store": "made", "history": random.choice((0, 10, 50))}
        kind = random.choice(("aggregate", "table_join", "table_aggregate", "cogroup"))
        if kind == "aggregate":
            it = self.step("aggregate", of=self.grouped("in1"), **fields)
        elif kind == "cogroup":
            sides = {"of": self.grouped("in1"), "with": self.grouped("in2")}
            it = self.step("cogroup", **sides, **fields)
        elif kind == "table_aggregate":
            it = self.step("table_group_by", of=self.table("in1"))
            it = self.step("table_aggregate", of=it, **fields)
        else:
            sides = {"of": self.versioned("in1"), "with": self.versioned("in2")}
            store = fields if random.random() < 0.5 else {}
            it = self.step("table_join", **sides, **self.any_join(), **store)
        if random.random() < 0.3:
            it = self.step("table_join", of=it, **{"with": self.versioned("in3")}, kind="outer")
            self.write(it)
            return
        sides = {"of": self.keyed("in0"), "with": it}
        it = self.step("stream_table_join", **sides, **self.any_join("inner", "left"))
        self.steps.append({"op": "to", "of": it, "topic": "out"})

    def self_join(self) -> None:
        """Add a join of a stream with itself."""
        random = self.random
        fields = {name: random.choice((0, 5, 15)) for name in ("before", "after", "grace")}
        it = self.keyed("in0")
        it = self.step("stream_join", of=it, **{"with": it}, **self.any_join(), **fields)
        self.steps.append({"op": "to", "of": it, "topic": "out"})

    def bounded(self) -> None:
        """Add tables that have the keys used most recently, alone or joined."""
        random = self.random

        def fields(name: str) -> dict[str, Any]:
            return {"store": name, "entries": random.choice((1, 2, 3))}

        kind = random.choice(("table_join", "stream_table_join", "count", "aggregate", "regrouped"))
        if kind in {"count", "aggregate"}:
            grouped = self.step("group_by", of=self.stream("in0"))
            self.write(self.step(kind, of=grouped, **fields("counted")))
            return
        table = self.step("table", topic="in0", **fields("left"))
        if kind == "regrouped":
            it = self.step("table_group_by", of=table)
            self.write(self.step("table_aggregate", of=it, **fields("grouped")))
        elif kind == "table_join":
            sides = {"of": table, "with": self.step("table", topic="in1", **fields("right"))}
            self.write(self.step("table_join", **sides, **self.any_join(), **fields("joined")))
        else:
            sides = {"of": self.keyed("in1"), "with": table}
            it = self.step("stream_table_join", **sides, **self.any_join("inner", "left"))
            self.steps.append({"op": "to", "of": it, "topic": "out"})

    def patterns(self) -> None:
        """Add two streams of a pattern, which share a source, merged, joined or aggregated."""
        it = self.step("stream", pattern="in[01]")
        other = self.step("stream", pattern="in[01]")
        it = self.step(self.random.choice(("filter", "select_key", "flat_map")), of=it)
        sides = {"of": it, "with": self.random.choice((other, self.stream("in2")))}
        it = self.step("merge", **sides)
        if self.random.random() < 0.5:
            table = self.table("in3")
            joined = {"of": it, "with": table, **self.any_join("inner", "left")}
            it = self.step("stream_table_join", **joined)
            self.steps.append({"op": "to", "of": it, "topic": "out"})
            return
        it = self.step(self.random.choice(("group_by_key", "group_by")), of=it)
        self.write(self.step(self.random.choice(("count", "aggregate", "reduce")), of=it))

    def inputs(self, count: int = 40) -> list[Input]:
        """Return records, some late, some without key or value."""
        random, time, found = self.random, 0, []
        named = {step["topic"] for step in self.steps if "in" in step.get("topic", "")}
        matched = {"in0", "in1"} if any("pattern" in step for step in self.steps) else set()
        topics = sorted(named | matched)
        for _ in range(count):
            time += random.choice((0, 1, 1, 3, 7, 12))
            late = random.choice((0, 0, 0, 2, 9, 25))
            key = None if random.random() < 0.04 and not self.waits() else random.choice(KEYS)
            letters = "".join(random.choice("abcz") for _ in range(random.choice((1, 1, 2, 3))))
            value = None if random.random() < 0.1 and self.takes_nulls() else letters
            found.append((random.choice(topics), key, value, max(0, time - late)))
        return found

    def waits(self) -> bool:
        """Whether records wait for a join: Kafka fails there with a null key."""
        return any("waits" in step for step in self.steps)

    def takes_nulls(self) -> bool:
        """Whether the functions of the steps take null values."""
        return not any(step["op"] in {"map_values", "aggregate_null"} for step in self.steps)


KINDS = (
    "stateless",
    "aggregation",
    "windows",
    "tables",
    "suppressed_table",
    "suppressed_bytes",
    "suppressed_join",
    "stream_join",
    "stream_table_join",
    "global_join",
    "table_join",
    "foreign_key_join",
    "cogroup",
    "to_table",
    "versioned_join",
    "versioned_tables",
    "versioned_aggregation",
    "processors",
    "transformed",
    "other_windows",
    "self_join",
    "two_joins",
    "versioned_results",
    "lookups",
    "same_topic",
    "chosen_partitions",
    "patterns",
    "bounded",
)
