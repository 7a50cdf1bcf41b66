"""Fixtures for tests: real nodes in the test's process, faults, simulated nodes and disks.

The public classes are loaded on first use: pytest imports this package in every run.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, whose import would cost more than all of this
if TYPE_CHECKING:
    from ottla.config.problems import ConfigErrors
    from ottla.testing.cluster import Cluster, ForeignCluster
    from ottla.testing.errors import ClusterError
    from ottla.testing.expectation import Expectation
    from ottla.testing.kafka import Kafka, KafkaFactory
    from ottla.testing.pipeline_driver import PipelineDriver
    from ottla.testing.secured import SecuredCluster
    from ottla.testing.simulation.cluster import SimulatedCluster
    from ottla.testing.topic import TestTopic

__all__ = [
    "Cluster",
    "ClusterError",
    "ConfigErrors",
    "Expectation",
    "ForeignCluster",
    "Kafka",
    "KafkaFactory",
    "PipelineDriver",
    "SecuredCluster",
    "SimulatedCluster",
    "TestTopic",
]

_MODULES = {
    "Cluster": "ottla.testing.cluster",
    "ClusterError": "ottla.testing.errors",
    "ConfigErrors": "ottla.config.problems",
    "Expectation": "ottla.testing.expectation",
    "ForeignCluster": "ottla.testing.cluster",
    "Kafka": "ottla.testing.kafka",
    "KafkaFactory": "ottla.testing.kafka",
    "PipelineDriver": "ottla.testing.pipeline_driver",
    "SecuredCluster": "ottla.testing.secured",
    "SimulatedCluster": "ottla.testing.simulation.cluster",
    "TestTopic": "ottla.testing.topic",
}

if not TYPE_CHECKING:  # a misspelt name is an error for type checkers, too

    def __getattr__(name: str) -> object:
        """Import the module behind a public name on first use (PEP 562)."""
        if name not in _MODULES:
            raise AttributeError(f"module 'ottla.testing' has no attribute {name!r}")
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names without importing them."""
    return sorted(__all__)
