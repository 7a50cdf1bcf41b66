"""Write the pages of the reference from the code: settings, metrics, commands, the API.

`python scripts/write_reference.py DIRECTORY`; `scripts/docs` calls it for the site.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

import ottla
from ottla import spark, streams, testing
from ottla.cli.main import COMMANDS
from ottla.config.broker import BrokerConfig
from ottla.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.config.definition import cell, code, reference, table
from ottla.config.dynamic import ALL_DYNAMIC
from ottla.config.group import ClientMetricsConfig, GroupConfig
from ottla.config.own import OwnSettings
from ottla.config.topic import TopicConfig
from ottla.metrics.families import Family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.config.definition import ConfigTable

SOURCE = Path(ottla.__file__).parent
METRICS = [f"server.metrics.{path.stem}" for path in (SOURCE / "server" / "metrics").glob("[a-z]*")]
SPARK_SESSION = "ottla.spark.jvm.local_session"
FACADE_MAKERS = {"blocking", "locked"}
"""The functions that make a method of a blocking client from one of the asyncio client."""
METRIC_MODULES = sorted({*METRICS, "server.http.app", "server.system.process"})


def settings(tables: Iterable[tuple[str, type[ConfigTable]]], *, dynamic: bool = False) -> str:
    """Return one table of settings by group, each sorted by name."""
    changing = ALL_DYNAMIC if dynamic else None
    return "\n".join(
        f"## {title}\n\n{reference(group.definitions, changing)}" for title, group in tables
    )


def metric_page() -> str:
    """List every family with both spellings."""
    rows = {
        f"| {code(one.classic)} | {code('' if one.reporter == one.classic else one.reporter)} "
        f"| {one.kind} | {cell(one.text)} |"
        for name in METRIC_MODULES
        for one in families(vars(import_module(f"ottla.{name}")))
    }
    head = "| classic | reporter, where it differs | type | meaning |"
    return (
        "# Metrics of a node\n\nCounters end with `_total` when they are shown. "
        "Meaning of the spellings, labels and probes: `docs/metrics.md`.\n\n"
    ) + table(head, sorted(rows))


def families(found: object) -> Iterator[Family]:
    """Yield the families in a module's constants, also those in collections."""
    if isinstance(found, Family):
        yield found
    elif isinstance(found, dict):
        for one in found.values():
            yield from families(one)
    elif isinstance(found, list | tuple):
        for one in found:
            yield from families(one)


def command_page() -> str:
    """Show the help of every command."""
    parts = ["# Commands\n\nThe help of every command; `docs/tools.md` introduces them.\n"]
    for name, place in sorted(COMMANDS.items()):
        command = getattr(import_module(place.module), place.attribute)
        parts.append(f"## {name}\n\n{help_of(command, name, None)}")
    return "\n".join(parts)


def help_of(command: click.Command, name: str, parent: click.Context | None) -> str:
    """Return the help of a command and of its subcommands."""
    above = parent or click.Context(click.Group("ottla"), info_name="ottla")
    context = click.Context(command, info_name=name, parent=above, max_content_width=90)
    text = f"```text\n{command.get_help(context)}\n```\n\n"
    if isinstance(command, click.Group):
        for one in command.list_commands(context):
            found = command.get_command(context, one)
            if found is not None:
                text += help_of(found, one, context)
    return text


def api_page() -> str:
    """List what the packages for users export, with methods and their documentation."""
    modules = vars(ottla)["_MODULES"]
    exported = [name for name in ottla.__all__ if not name.startswith("_")]
    errors = [name for name in exported if name not in modules]
    guides = "`docs/clients.md`, `docs/streams.md`, `docs/spark.md`, `docs/testing.md`"
    parts = [f"# API\n\nGuides: {guides}.\n\n## ottla\n"]
    parts += [definition(modules[name], name) for name in exported if name in modules]
    parts.append(
        "## Errors\n\nAll are exported by `ottla`; `docs/clients.md` says who raises them.\n"
    )
    head = "| exception | meaning |"
    parts.append(table(head, (f"| `{one}` | {cell(first_line(one))} |" for one in errors)))
    parts.append("## ottla.testing\n")
    places = vars(testing)["_MODULES"]
    parts += [definition(places[name], name) for name in testing.__all__]
    parts.append("## ottla.streams\n")
    places = vars(streams)["_MODULES"]
    parts += [definition(places[name], name) for name in streams.__all__]
    parts.append("## ottla.spark\n")
    parts += [definition(SPARK_SESSION, name) for name in spark.__all__]
    return "\n".join(parts)


def first_line(name: str) -> str:
    """Return the first line of an exception's documentation."""
    return (getattr(ottla, name).__doc__ or "").strip().partition("\n")[0]


def definition(module: str, name: str) -> str:
    """Return a class with its public methods, read from its source (some are compiled)."""
    found = defined(module, name)
    if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        return f"### {name}\n\n{method(found)}\n"
    if found is None:
        return f"### {name}\n"
    text = f"### {name}\n\n{documentation(found)}\n\n"
    seen: dict[str, str] = {}
    for one in lineage(module, found):
        for member in one.body:
            if isinstance(member, ast.AnnAssign) and not ast.unparse(member.target).startswith("_"):
                name = ast.unparse(member.target)
                seen[name] = f"- `{name}: {ast.unparse(member.annotation)}`"
            if isinstance(member, ast.Assign) and (made := of_facade(module, member)):
                target = ast.unparse(member.targets[0])
                seen.setdefault(target, made)
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                public = not member.name.startswith("_") or member.name == "__init__"
                if public and member.name not in seen:
                    seen[member.name] = method(member)
    lines = "\n".join(seen.values())
    return text + (f"{lines}\n" if lines else "")


def of_facade(module: str, member: ast.Assign) -> str | None:
    """Return the item of `name = blocking(AsyncX.name)` or `locked(…)`: what it makes of a method.

    The method is looked up in its class and the bases of it; without one the item is None.
    """
    call = member.value
    if not isinstance(call, ast.Call) or ast.unparse(call.func) not in FACADE_MAKERS:
        return None
    (wrapped,) = call.args
    assert isinstance(wrapped, ast.Attribute)
    owner = ast.unparse(wrapped.value)
    place = imported_from(module, owner)
    found = class_of(place, owner) if place else None
    if place is None or found is None:
        return None
    for one in lineage(place, found):
        for inner in one.body:
            if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if inner.name == wrapped.attr:
                return method(inner).replace("`await ", "`", 1)
    return None


def method(member: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the item of a method: signature and first paragraph."""
    word = "await " if isinstance(member, ast.AsyncFunctionDef) else ""
    names = [one.arg for one in (*member.args.posonlyargs, *member.args.args)]
    if names and names[0] in {"self", "cls"}:
        group = member.args.posonlyargs or member.args.args
        group.pop(0)
    arguments = ast.unparse(member.args)
    is_property = any(
        isinstance(one, ast.Name) and one.id == "property" for one in member.decorator_list
    )
    shown = member.name if is_property else f"{member.name}({arguments})"
    answer = f" -> {ast.unparse(member.returns)}" if member.returns else ""
    text = documentation(member).partition("\n\n")[0].replace("\n", "\n  ")
    return f"- `{word}{shown}{answer}`\n  {text}"


def documentation(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the docstring; a single star would begin emphasis."""
    text = ast.get_docstring(node) or ""
    return text.partition("\n\nKafka: ")[0].replace("*", "\\*").strip()


def lineage(module: str, found: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """Yield a class and its bases of this package."""
    yield found
    for base in found.bases:
        name = ast.unparse(base).partition("[")[0]
        place = imported_from(module, name)
        above = class_of(place, name) if place else None
        if place and above is not None:
            yield from lineage(place, above)


@cache
def tree_of(module: str) -> ast.Module:
    """Parse a module of this package."""
    path = SOURCE.parent / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def defined(module: str, name: str) -> ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Find a class or a function in a module."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for one in tree_of(module).body:
        if isinstance(one, kinds) and one.name == name:
            return one
    return None


def class_of(module: str, name: str) -> ast.ClassDef | None:
    """Find a class in a module."""
    found = defined(module, name)
    return found if isinstance(found, ast.ClassDef) else None


def imported_from(module: str, name: str) -> str | None:
    """Return the module of a name: where it is imported from, else this one."""
    for one in ast.walk(tree_of(module)):
        if isinstance(one, ast.ImportFrom) and any(each.name == name for each in one.names):
            return one.module if (one.module or "").startswith("ottla") else None
    return module


def main(directory: Path) -> None:
    """Write all pages."""
    directory.mkdir(parents=True, exist_ok=True)
    without_effect = "Which settings have no effect yet: `docs/configuration.md`.\n\n"
    nodes = [("Settings of Kafka", BrokerConfig), ("Settings of Ottla", OwnSettings)]
    topics = [("Topics", TopicConfig), ("Groups", GroupConfig)]
    topics.append(("Client metrics subscriptions", ClientMetricsConfig))
    clients = [("Producer", ProducerConfig), ("Consumer", ConsumerConfig), ("Admin", AdminConfig)]
    for name, text in {
        "broker-settings": f"# Broker settings\n\n{without_effect}{settings(nodes, dynamic=True)}",
        "topic-settings": f"# Topic and group settings\n\n{without_effect}{settings(topics)}",
        "client-settings": "# Client settings\n\nWhich have no effect, which take Python values: "
        f"`docs/clients.md`.\n\n{settings(clients)}",
        "metrics": metric_page(),
        "commands": command_page(),
        "api": api_page(),
    }.items():
        (directory / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(f"usage: {sys.argv[0]} DIRECTORY")
    main(Path(sys.argv[1]))
