"""Style rules as tests: sizes, names, docstrings, dead modules, and documents that match the code.

The ceilings keep monsters out; below them a function or module is as long as its thought.
"""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import re2

from tests.source_trees import (
    PACKAGE,
    ROOT,
    TESTS,
    dotted,
    functions,
    is_hot,
    mentions,
    modules,
    tree_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_FUNCTION = 70
LONGEST_MODULE = 800
MAX_POSITIONAL_ARGUMENTS = 5
BANNED_MODULES = {"utils", "util", "helpers", "helper", "common", "manager", "impl", "misc"}

# Parts without a counterpart in Kafka.
OURS_ALONE = re.compile(
    r"__init__\.py$|^(__main__|_version|clock)\.py$|^(testing|spark|console|quickstart)/"
    r"|^clients/blocking\.py$"
)

# Modules that something outside src names: entry points, and lists of names that import late.
ENTRY_POINTS = {
    "ottla.__main__",
    "ottla._version",
    "ottla.cli.main",
    "ottla.testing.disk",  # for tests of users and ours: no part of the product imports it
    "ottla.testing.connect",  # the same
    "ottla.testing.plugin",
}

# re2 reads all files in a tenth of re's time, however many words are searched.
ERASED = re2.compile(
    "|".join(rf"\b{one}\b" for one in ("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"))
)
MACHINE = re2.compile(r"/work/|/home/\w+/|/root/|/Users/\w+/|\bpypi\.org\b|repo1?\.maven\.org")


@pytest.fixture(scope="module", autouse=True)
def _trees_are_no_garbage() -> Iterator[None]:
    """Search for no garbage among millions of nodes, here and in the tests of other files."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def python_files() -> tuple[Path, ...]:
    """List every Python file of the project."""
    directories = (PACKAGE, TESTS, ROOT / "benchmarks", ROOT / "examples")
    return tuple(path for directory in directories for path in modules(directory))


def test_functions_are_short() -> None:
    """No function is longer than the limit."""
    found = list(functions(modules(PACKAGE)))
    long = [one.place for one in found if one.lines > LONGEST_FUNCTION]
    assert not long


def test_modules_are_short() -> None:
    """No module is longer than the limit, which keeps monsters out and shapes nothing else."""
    sizes = {
        path: len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files()
        if path.name != "__init__.py"
    }
    assert not [
        str(path.relative_to(ROOT)) for path, size in sizes.items() if size > LONGEST_MODULE
    ]


def test_functions_take_few_positional_arguments() -> None:
    """Beyond five, arguments have names at the call; hot paths and click's callbacks are exempt."""
    crowded = []
    for one in functions(modules(PACKAGE)):
        names = [argument.arg for argument in (*one.node.args.posonlyargs, *one.node.args.args)]
        own = [name for name in names if name not in {"self", "cls"}]
        if len(own) > MAX_POSITIONAL_ARGUMENTS and "/cli/" not in one.place:
            crowded.append(one)
    hot = {path.relative_to(ROOT).as_posix() for path in modules(PACKAGE) if is_hot(path)}
    assert not [one.place for one in crowded if one.place.partition(":")[0] not in hot]


def test_no_module_has_a_name_that_says_nothing() -> None:
    """No module has a generic name."""
    assert not [str(path) for path in modules(PACKAGE) if path.stem in BANNED_MODULES]


def test_every_module_says_what_it_is() -> None:
    """Each module begins with a docstring, and names Kafka's counterpart where there is one."""
    silent, uncounted = [], []
    for path in modules(PACKAGE):
        place = path.relative_to(PACKAGE).as_posix()
        text = ast.get_docstring(tree_of(path))
        if not text:
            silent.append(place)
        elif "Kafka:" not in text and not OURS_ALONE.search(place):
            uncounted.append(place)
    assert not silent
    assert not uncounted


def test_every_test_says_what_it_shows() -> None:
    """Every test has a docstring: the statement that it verifies."""
    silent = [
        one.place
        for one in functions(modules(TESTS))
        if one.node.name.startswith("test_") and not ast.get_docstring(one.node)
    ]
    assert not silent


def imports_of(path: Path) -> Iterator[str]:
    """Yield the modules a file imports, those named in texts too (they are imported late)."""
    own = dotted(path)
    package = own if path.name == "__init__.py" else own.rpartition(".")[0]
    for node in (node for _, nodes in mentions(path) for node in nodes):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join(above) + "." if node.level else ""
            base = (base + (node.module or "")).rstrip(".")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\bottla(?:\.\w+)+", node.value) if len(node.value) < 200 else ()


def test_no_module_is_dead() -> None:
    """Every module is reached from another one, from an entry point or from a table of names."""
    reached = set(ENTRY_POINTS)
    for path in modules(PACKAGE):
        own = dotted(path)
        reached.update(name for name in imports_of(path) if name != own)
    # Found by name: a module an API, a command, a handler, a store; and records of all of Kafka.
    late = (
        "ottla.protocol.apis.",
        "ottla.protocol.records.",
        "ottla.cli.",
        "ottla.server.handlers.",
        "ottla.storage.remote.managers.",
        "ottla.connect.converters.",
        "ottla.connect.predicates",
        "ottla.connect.transforms.",
    )
    dead = [
        name
        for name in map(dotted, modules(PACKAGE))
        if name not in reached
        and not name.startswith(late)
        and not any(other.startswith(name + ".") for other in reached)
    ]
    assert not dead


@cache
def imported_by(path: Path, *, with_types: bool) -> frozenset[str]:
    """Return the modules of ours that importing a module runs, or that its annotations name too.

    Imports within functions run later and do not count.
    """
    found: set[str] = set()
    names = {dotted(one) for one in modules(PACKAGE)}
    pending: list[ast.stmt] = list(tree_of(path).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(parts & names or {node.module})
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += [*node.orelse, *(node.body if with_types else ())]
        elif isinstance(node, ast.If | ast.Try):
            pending += [*node.body, *node.orelse, *getattr(node, "finalbody", ())]
    above = {name[: match.start()] for name in found for match in re.finditer(r"\.", name)}
    own = dotted(path)
    return frozenset(
        name for name in (found | above) & names if not f"{own}.".startswith(f"{name}.")
    )


# Parts of one object in modules of their own: their annotations name each other.
PARTS_OF_ONE_OBJECT = re.compile(
    r"^ottla\.(storage\.log\.\w+|storage\.segments\.segment(_recovery)?"
    r"|storage\.log_set\.(future_logs|loading|log_set)"
    r"|streams\.dsl\.(stream|table|grouped|cogrouped|windowed)"
    r"|server\.requests\.(api|context|throttling)|testing\.simulation\.(checks|node_rot|workload))$"
)


@pytest.mark.parametrize("with_types", [False, True])
def test_modules_do_not_import_each_other_in_a_circle(with_types: bool) -> None:  # noqa: FBT001
    """Imports have an order: what is left after all leaves are removed is a circle."""
    left = {
        dotted(path): set(imported_by(path, with_types=with_types)) for path in modules(PACKAGE)
    }
    for part in filter(PARTS_OF_ONE_OBJECT.match, left if with_types else ()):
        left[part] = {one for one in left[part] if not PARTS_OF_ONE_OBJECT.match(one)}
    while leaves := {name for name, imported in left.items() if not imported & left.keys()}:
        left = {name: imported for name, imported in left.items() if name not in leaves}
    while roots := left.keys() - {one for imported in left.values() for one in imported}:
        left = {name: imported for name, imported in left.items() if name not in roots}
    assert not sorted(left)


# Definitions that only users of Ottla call: bases of plug-ins, and what the documents offer.
FOR_USERS = {
    "ottla.testing.connect:SinkRun",
    "ottla.testing.connect:check_restarts",
    "ottla.spark.jvm.local_session:use_in_this_thread",  # docs/spark.md: for another thread
    "ottla.clients.interceptors:ConsumerInterceptor",
    "ottla.clients.interceptors:ProducerInterceptor",
    "ottla.controller.policies:PolicyViolation",
}
# Found by name: by the codec and the registry, by click, by the dispatcher, by pytest.
CALLED_BY_NAME = re.compile(
    r"^ottla\.(protocol\.(apis|records)\.|testing\.plugin$|connect\.(converters|transforms|predicates))"
)
NAMES_IN_TEXT = re.compile(r"[\w.:\[\], |]{1,200}")
REGISTERS = re.compile(r"\b(command|group|handles)\b")


# Still used by tests alone; the list may only become shorter.
UNUSED_YET = {
    "ottla.protocol.api_keys:advertised_versions",
}


class Definition(NamedTuple):
    """A function, class or constant of a module and the lines it takes."""

    module: str
    name: str
    lines: range


def definitions(path: Path) -> Iterator[Definition]:
    """Yield what a module defines at its top level; what a decorator registers is left out."""
    for node in tree_of(path).body:
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            registered = any(REGISTERS.search(ast.unparse(one)) for one in node.decorator_list)
            if not registered and not node.name.startswith("__"):
                yield Definition(dotted(path), node.name, lines)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and not target.id.startswith("__"):
                    yield Definition(dotted(path), target.id, lines)


def used_names(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the names a module uses, with lines; imports and lists of exports are no use."""
    is_public = dotted(path) == "ottla" or dotted(path).startswith("ottla.testing")
    for statement, nodes in mentions(path):
        if (
            not is_public
            and isinstance(statement, ast.Assign)
            and "__all__" in ast.unparse(statement.targets[0])
        ):
            continue
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield node.id, node.lineno
            elif isinstance(node, ast.Attribute):
                yield node.attr, node.lineno
            elif isinstance(node, ast.ImportFrom):
                yield from ((one.name, node.lineno) for one in node.names if one.asname)
            elif isinstance(node, ast.Constant) and NAMES_IN_TEXT.fullmatch(str(node.value)):
                yield from ((word, node.lineno) for word in re.findall(r"\w+", str(node.value)))


def test_every_definition_has_a_caller() -> None:
    """What nothing in the product uses goes, with its tests; users' own entrances are listed."""
    used: dict[str, set[tuple[str, int]]] = {}
    for path in modules(PACKAGE):
        for name, line in used_names(path):
            used.setdefault(name, set()).add((dotted(path), line))
    unused = [
        f"{one.module}:{one.name}"
        for path in modules(PACKAGE)
        for one in definitions(path)
        if not CALLED_BY_NAME.search(one.module)
        and all(
            module == one.module and line in one.lines for module, line in used.get(one.name, ())
        )
    ]
    assert not sorted(set(unused) - FOR_USERS - UNUSED_YET)
    assert not sorted(UNUSED_YET - set(unused))


SHARED_NAMES = {
    "NewTopic", "Node", "Record", "RecordMetadata", "ResourceType", "ScramCredential",
    "Connector", "Filter", "Source", "Task",
}  # fmt: skip
"""Names of two classes each, that users know from Kafka, the node, topologies or Connect."""


def test_a_name_is_given_to_one_class() -> None:
    """A search for a class finds one; the protocol's structs are named as Kafka's messages."""
    places: dict[str, list[str]] = {}
    for path in modules(PACKAGE):
        if "protocol" not in path.relative_to(PACKAGE).parts:
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(dotted(path))
    twice = {name for name, found in places.items() if len(found) > 1}
    assert twice == SHARED_NAMES, [(name, places.get(name)) for name in twice ^ SHARED_NAMES]


def written_files() -> Iterator[Path]:
    """Yield every text file that was written by hand."""
    yield from python_files()
    for pattern in ("docs/**/*.md", "*.md", "scripts/*", ".ci/*", "pyproject.toml"):
        yield from (path for path in sorted(ROOT.glob(pattern)) if path.is_file())


def test_nothing_is_left_for_later() -> None:
    """Notes to oneself live in docs/plan.md, not in the code."""
    left = []
    for path in python_files():
        text = path.read_text(encoding="utf-8")
        left += [
            f"{path.relative_to(ROOT)}:{text[: found.start()].count(chr(10)) + 1}"
            for found in ERASED.finditer(text)
        ]
    assert not left


def test_no_machine_is_named() -> None:
    """Files name no directory of one machine and no registry's host."""
    own = Path(__file__)
    named = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in written_files()
        if path != own and (found := MACHINE.search(path.read_text(encoding="utf-8")))
    ]
    assert not named


def documents() -> list[Path]:
    """List the documents."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


INVENTED_WORDS = re2.compile(
    r"(?i)\b(luck|unfold(s|ed|ing)?|upkeep|strangers?|anew|heed(s|ed)?|mend(s|ed|ing)?|nobody|beside"
    r"|goodbye|wishes|sharers?|verdicts?|troubles?|judge[sd]?|(short|long) ways?|likelier|rubbish"
    r"|begins of|_?hang_up|let_go|takes? up (no|the)|not to be had|now and then|so long a"
    r"|is_passing|obey(s|ed)?|trickle[sd]?|trickling|newcomers?|clear_away|_tell|unbuilt"
    r"|speaks no more|leads it no more|others only look|first words|TurnLoop|StepWatch"
    r"|UnfoldsTooFar|(?-i:_?(MOST|LEAST)_\w+)|meeting_after|told_of\w*|on_untold|_can_be_told)\b"
)


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_documents_use_standard_terms(path: Path) -> None:
    """No document uses a word for which Kafka or the field has another; old names may be quoted."""
    prose = re.sub(r"`[^`\n]+`", "", path.read_text(encoding="utf-8"))
    assert not [found[0] for found in INVENTED_WORDS.finditer(prose)]


def test_code_uses_standard_terms() -> None:
    """No name, comment or text of the code uses such a word."""
    own = Path(__file__)
    data = [
        path for pattern in ("tests/**/*.toml", "tests/**/*.txt") for path in ROOT.glob(pattern)
    ]
    found = {
        f"{path.relative_to(ROOT)}:{text[: word.start()].count(chr(10)) + 1} {word[0]}"
        for path in {*written_files(), *data} - {own, *documents()}
        if path.suffix != ".md"
        for text in [path.read_text(encoding="utf-8")]
        for word in INVENTED_WORDS.finditer(text)
    }
    assert not sorted(found)


def test_hot_paths_own_a_benchmark() -> None:
    """A module that says `Hot path:` names a benchmark that exists, or a benchmark imports it."""
    measured = "\n".join(path.read_text(encoding="utf-8") for path in modules(ROOT / "benchmarks"))
    unmeasured = []
    for path in filter(is_hot, modules(PACKAGE)):
        named = re.findall(r"benchmarks/[\w/.]+\w", ast.get_docstring(tree_of(path)) or "")
        if dotted(path) not in measured and not any((ROOT / one).exists() for one in named):
            unmeasured.append(dotted(path))
    assert not unmeasured


PATH_IN_DOCS = re.compile(
    r"`((?:src|tests|docs|scripts|benchmarks|examples)/[\w./*-]+|[\w/]+\.py)`"
)


@pytest.mark.parametrize(
    "document", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name
)
def test_paths_in_the_maps_exist(document: Path) -> None:
    """Every file a document names is there; a source file may be named by the end of its path."""
    missing = []
    for place in PATH_IN_DOCS.findall(document.read_text(encoding="utf-8")):
        name = place.rstrip("/")
        if not any(ROOT.glob(name)) and not any(PACKAGE.rglob(name)):
            missing.append(place)
    assert not missing


def test_every_term_of_the_map_has_a_module() -> None:
    """Each row of docs/concepts.md names an existing module or says "not built yet"."""
    text = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    terms = [row for row in rows if row[0].strip() != "term"]
    assert len(terms) > 100
    assert not [row[0] for row in terms if len(row) != 3]
    unplaced = [
        row[0].strip()
        for row in terms
        if "not built yet" not in row[2]
        and not any((PACKAGE / name).is_file() for name in re.findall(r"`([\w/]+\.py)`", row[2]))
    ]
    assert not unplaced
    assert not [row[0] for row in terms if "not built yet" in row[2] and "`" in row[2]]
    named = {name for row in terms for name in re.findall(r"`([^`]+)`", row[2])}
    assert not sorted(name for name in named if not (PACKAGE / name).is_file())


def test_every_proposal_is_on_the_map() -> None:
    """A KIP that a module outside protocol/ cites has its line in docs/kips.md."""
    lines = (ROOT / "docs" / "kips.md").read_text(encoding="utf-8").splitlines()
    mapped = {
        number
        for line in lines
        if line.startswith("|")
        for number in re.findall(r"\d+", line.split("|")[1])
    }
    cited = {
        number
        for path in modules(PACKAGE)
        if path.relative_to(PACKAGE).parts[0] != "protocol"
        for number in re.findall(r"KIP-(\d+)", path.read_text(encoding="utf-8"))
    }
    assert not cited - mapped


def test_every_package_is_on_the_map() -> None:
    """docs/concepts.md has a place for every package of the source tree."""
    text = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    packages = {
        path.parent.relative_to(PACKAGE).parts[0]
        for path in modules(PACKAGE)
        if path.parent != PACKAGE
    }
    assert not sorted(name for name in packages if f"`{name}/" not in text)


# The packages that DESIGN calls cores, and what must not know Spark or (of these) a broker.
CORES = {"raft", "storage", "controller", "coordinator", "replication", "quota", "metadata"} | {
    "security",
    "purgatory",
    "timeline",
    "records",
    "protocol",
}
SPARKLESS = CORES | {"config", "metrics", "network", "server", "clients", "cli", "registry"}
BROKERS = {"server", "controller", "coordinator", "replication", "quota", "metadata", "raft"} | {
    "storage",
    "timeline",
}


def test_the_contracts_name_every_package() -> None:
    """import-linter needs a list of packages: it must be complete."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {one["name"]: one for one in settings["tool"]["importlinter"]["contracts"]}
    there = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}

    def missing(contract: str, key: str, required: set[str]) -> set[str]:
        listed = {name.removeprefix("ottla.") for name in contracts[contract][key]}
        return (required & there) - listed

    cores = "Cores know no clock, no socket, no file and no randomness"
    assert not missing(cores, "source_modules", CORES)
    assert not missing("Only spark and streams know Spark", "source_modules", SPARKLESS)
    assert not missing("Clients import no part of a broker", "forbidden_modules", BROKERS)


def loaded_by(statement: str) -> set[str]:
    """Run a statement in a fresh interpreter and return the names of all modules it loaded."""
    program = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(finished.stdout.split())


def test_importing_ottla_loads_nothing() -> None:
    """`import ottla` costs almost no time, because only two modules of ours are read."""
    bare = loaded_by("import importlib")
    extra = loaded_by("import ottla") - bare
    assert {name for name in extra if name.startswith("ottla")} == {"ottla", "ottla._version"}
    assert not extra & {"asyncio", "ssl", "socket", "click", "rich", "cramjam", "logging"}


def test_the_command_line_starts_without_the_system() -> None:
    """`ottla --help` loads click and the list of commands, but no command."""
    statement = (
        "from ottla.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    )
    loaded = loaded_by(statement)
    own = {name for name in loaded if name.startswith("ottla.")}
    assert {name.split(".")[1] for name in own} <= {"cli", "_version", "config"}
    assert not loaded & {"asyncio", "ssl", "rich", "cramjam", "uvloop", "psutil", "xxhash"}


def test_the_plug_in_for_pytest_is_light() -> None:
    """Every pytest run on the machine loads the plug-in: it must not load the rest of Ottla."""
    extra = loaded_by("import pytest; import ottla.testing.plugin") - loaded_by("import pytest")
    own = {name for name in extra if name.startswith("ottla.")}
    assert own <= {"ottla._version", "ottla.testing", "ottla.testing.plugin"}


def test_ci_runs_the_line_of_the_readme() -> None:
    """The command of the README is the command that CI runs."""
    line = "scripts/setup && scripts/test"
    assert f"\n{line}\n" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"({line})" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
