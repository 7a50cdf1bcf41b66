"""Trees of the source files, parsed once for all tests that read them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
PACKAGE = SOURCES / "ottla"
TESTS = ROOT / "tests"


class Function(NamedTuple):
    """A function or method: where it is, how long its code is, and its arguments."""

    place: str
    lines: int
    node: ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree_of(path: Path) -> ast.Module:
    """Parse a file once for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def modules(directory: Path) -> tuple[Path, ...]:
    """List the Python files below a directory, in a fixed order."""
    return tuple(sorted(directory.rglob("*.py"))) if directory.is_dir() else ()


@cache
def functions(paths: tuple[Path, ...]) -> tuple[Function, ...]:
    """Return every function with its length, docstring and decorators left out."""
    return tuple(_functions(paths))


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every statement, without its expressions: a tenth of all nodes."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, part, ())


def _functions(paths: tuple[Path, ...]) -> Iterator[Function]:
    for path in paths:
        for node in statements(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                has_docstring = ast.get_docstring(node, clean=False) is not None
                body = node.body[1:] if has_docstring else node.body
                start = body[0].lineno if body and body[0] is not first else node.lineno
                lines = (node.end_lineno or node.lineno) - start + 1
                yield Function(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", lines, node)


def expressions(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a statement but contexts and operators: twice as fast as `ast.walk`."""
    waiting = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        for name in node._fields:
            part = getattr(node, name, None)
            if isinstance(part, ast.AST):
                if part._fields:
                    waiting.append(part)
            elif isinstance(part, list):
                waiting += [one for one in part if isinstance(one, ast.AST)]


MENTIONS = (ast.Import, ast.ImportFrom, ast.Name, ast.Attribute, ast.Constant)


@cache
def mentions(path: Path) -> tuple[tuple[ast.stmt, tuple[ast.AST, ...]], ...]:
    """Return what may name a module or a definition, by statement of the module."""
    return tuple(
        (statement, tuple(node for node in expressions(statement) if isinstance(node, MENTIONS)))
        for statement in tree_of(path).body
    )


def is_hot(path: Path) -> bool:
    """Whether a module's docstring declares a hot path."""
    return "Hot path:" in (ast.get_docstring(tree_of(path)) or "")


@cache
def dotted(path: Path) -> str:
    """Return a source file's module name."""
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
