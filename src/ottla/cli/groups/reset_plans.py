"""Reset plans of `consumer-groups`: read from CSV, written as CSV or as a table.

Kafka: org.apache.kafka.tools.consumer.group.{CsvUtils, ConsumerGroupCommand}.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.groups.flags import GroupCommandError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    Plan = dict[TopicPartition, int]

_LONGEST_PLAIN_CELL = 24


def read_plan(path: str, group: str, *, many: bool) -> Plan:
    """Read lines of topic,partition,offset, with the group first if there are several groups."""
    plan: Plan = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            for row in csv.reader(file):
                if not row:
                    continue
                cells = row
                if many or len(row) == 4:
                    if row[0] != group:
                        continue
                    cells = row[1:]
                topic, partition, offset = cells
                plan[TopicPartition(topic, int(partition))] = int(offset)
    except OSError as error:
        raise GroupCommandError(f"java.io.IOException: Unable to read file {path}") from error
    except ValueError as error:
        raise GroupCommandError(
            f"{path} is not a list of topic,partition,offset: {error}"
        ) from error
    if not plan:
        click.echo(f"\nError: No reset plan for group {group} found")
    return plan


def export_plans(plans: Mapping[str, Plan], *, many: bool) -> None:
    """Print plans as CSV, with the group first if there are several groups."""
    for group, plan in plans.items():
        for partition, offset in sorted(plan.items()):
            cells = [partition.topic, str(partition.partition), str(offset)]
            click.echo(",".join(map(_csv_cell, [group, *cells] if many else cells)))
    click.echo()


def _csv_cell(text: str) -> str:
    """Quote as Jackson does: long texts, and those with a character below the hyphen."""
    if len(text) <= _LONGEST_PLAIN_CELL and all(sign >= "-" for sign in text):
        return text
    return '"' + text.replace('"', '""') + '"'


def print_plans(plans: Mapping[str, Plan]) -> None:
    """Print plans as a table."""
    group_width = max([15, *(len(group) for group in plans)])
    topics = [partition.topic for plan in plans.values() for partition in plan]
    width = max([15, *(len(topic) for topic in topics)])
    click.echo(f"\n{'GROUP':<{group_width}} {'TOPIC':<{width}} {'PARTITION':<10} NEW-OFFSET")
    for group, plan in plans.items():
        for partition, offset in sorted(plan.items()):
            click.echo(
                f"{group:<{group_width}} {partition.topic:<{width}} {partition.partition:<10} "
                f"{offset}"
            )
