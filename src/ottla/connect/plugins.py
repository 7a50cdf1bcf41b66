"""The plug-ins by name: Kafka's Java classes that have a counterpart here, and other packages'.

Classes are found by Java name, by alias (`JsonConverter`, `InsertField$Value`), and, of other
packages, by the name of an entry point or by the dotted path of its class. Only the class that a
name refers to is imported.

Kafka: org.apache.kafka.connect.runtime.isolation.{Plugins, PluginUtils}.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from ottla.config.problems import nearest
from ottla.connect import PLUGIN_VERSION
from ottla.connect.connector import SinkConnector
from ottla.connect.errors import ConnectException
from ottla.connect.simple import connector_class

if TYPE_CHECKING:
    from collections.abc import Sequence

ENTRY_POINTS: Final = "ottla.connectors"
"""The group of entry points for the connectors, converters and transforms of packages."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A class as `GET /connector-plugins` lists it."""

    java_class: str
    type: str
    """source, sink, converter, header_converter, transformation or predicate."""
    path: str
    """The Python class, `module:Class`."""
    of_key: bool | None = None
    """The part of the record that a transform works on; None if it does not matter."""
    version: str = PLUGIN_VERSION
    modules: tuple[str, ...] | None = None
    """Of the transform in Python: the modules whose functions it may call."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Return the short names, as `Json` and `JsonConverter`."""
        simple = self.java_class.rpartition(".")[2]
        suffix = _SUFFIXES.get(self.type, "")
        return (simple, simple.removesuffix(suffix)) if suffix else (simple,)

    def load(self) -> Any:
        """Import and return the Python class; of a `Source` or `Sink`, its connector."""
        module, _, name = self.path.partition(":")
        return connector_class(getattr(import_module(module), name))

    def create(self) -> Any:
        """Return a new object of the class, which is not configured yet."""
        made = self.load()
        if self.modules is not None:
            return made(self.modules)
        return made() if self.of_key is None else made(of_key=self.of_key)


_SUFFIXES: Final = {
    "source": "Connector",
    "sink": "Connector",
    "converter": "Converter",
    "header_converter": "HeaderConverter",
}
_CONVERTERS: Final = "ottla.connect.converters"
_TRANSFORMS: Final = "ottla.connect.transforms"
_JAVA: Final = "org.apache.kafka.connect"


def _converters() -> list[Plugin]:
    numbers = ("ByteArray", "Boolean", "Double", "Float", "Integer", "Long", "Short")
    found = [(f"{_JAVA}.converters.{it}Converter", f"primitive:{it}Converter") for it in numbers]
    found.append((f"{_JAVA}.json.JsonConverter", "json:JsonConverter"))
    found.append((f"{_JAVA}.storage.StringConverter", "primitive:StringConverter"))
    both = [
        Plugin(java, kind, f"{_CONVERTERS}.{path}")
        for kind in ("converter", "header_converter")
        for java, path in found
    ]
    simple = f"{_JAVA}.storage.SimpleHeaderConverter"
    path = f"{_CONVERTERS}.primitive:SimpleHeaderConverter"
    return [*both, Plugin(simple, "header_converter", path)]


def _transforms() -> list[Plugin]:
    of_parts = {
        "cast": ("Cast",),
        "fields": (
            *("ExtractField", "Flatten", "HeaderFrom", "HoistField", "InsertField", "MaskField"),
            "ReplaceField",
        ),
        "records": ("SetSchemaMetadata",),
        "timestamps": ("TimestampConverter",),
    }
    whole = {
        "fields": ("ValueToKey",),
        "records": ("DropHeaders", "Filter", "InsertHeader", "RegexRouter", "TimestampRouter"),
    }
    found = [
        Plugin(
            f"{_JAVA}.transforms.{name}${part}",
            "transformation",
            f"{_TRANSFORMS}.{module}:{name}",
            of_key=part == "Key",
        )
        for module, names in of_parts.items()
        for name in names
        for part in ("Key", "Value")
    ]
    found += [
        Plugin(f"{_JAVA}.transforms.{name}", "transformation", f"{_TRANSFORMS}.{module}:{name}")
        for module, names in whole.items()
        for name in names
    ]
    path = f"{_TRANSFORMS}.records:Python"
    return [*found, Plugin("ottla.connect.Python", "transformation", path, modules=())]


PLUGINS: Final = (
    *_converters(),
    *_transforms(),
    *(
        Plugin(
            f"{_JAVA}.transforms.predicates.{name}", "predicate", f"ottla.connect.predicates:{name}"
        )
        for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
    ),
)
"""The plug-ins of this package."""


class Plugins:
    """The plug-ins of this package, of others (given, or of their entry points), by name."""

    def __init__(self, *others: Plugin) -> None:
        """Add the plug-ins of other modules of the worker, as its connectors."""
        self.plugins: tuple[Plugin, ...] = (*PLUGINS, *others)

    def allow_python(self, modules: Sequence[str]) -> None:
        """Let connectors name functions of these modules and of those below them."""
        self.plugins = tuple(
            it if it.modules is None else replace(it, modules=tuple(modules)) for it in self.plugins
        )

    def find(self, name: str, *types: str) -> Plugin:
        """Return the plug-in of a name; ConnectException, with the nearest name, without one."""
        for plugin in self.plugins:
            if plugin.type in types and (name == plugin.java_class or name in plugin.aliases):
                return plugin
        for point in entry_points(group=ENTRY_POINTS):
            if name in {point.name, point.value, point.value.replace(":", ".")}:
                version = point.dist.version if point.dist is not None else "unknown"
                plugin = Plugin(name, types[0], point.value, version=version)
                if "sink" in types and issubclass(plugin.load(), SinkConnector):
                    return replace(plugin, type="sink")
                return plugin
        known = [
            text
            for plugin in self.plugins
            if plugin.type in types
            for text in (plugin.java_class, *plugin.aliases)
        ]
        meant = nearest(name, known)
        proposal = f"; did you mean {meant}?" if meant else ""
        raise ConnectException(f"Unknown plugin {name}{proposal}")
