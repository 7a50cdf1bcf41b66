"""The documented Deployment, with Spark's own Kubernetes scheduler, against a stand-in of the API.

No container runs: each pod's container is a process on loopback, by the entry point of the image.
The Role is enforced: what the scheduler asks for has to be in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.spark.cluster_runs import LIMIT_S, CountingRun
from tests.spark.kubernetes import ApiServer, Place
from tests.spark.kubernetes_pods import Pods
from tests.waits import wait_for

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster
    from tests.spark.kubernetes import Object

pytestmark = [pytest.mark.conformance, pytest.mark.spark, pytest.mark.timeout(2700)]
FILES = Path(__file__).parents[2] / "packaging" / "spark"


def manifest() -> dict[str, Any]:
    """Return the documents of the recipe by kind."""
    text = (FILES / "kubernetes.yaml").read_text(encoding="utf-8")
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def driver_pod(name: str, replaced: dict[str, str]) -> Object:
    """Return a pod of the recipe's Deployment; texts in its arguments are replaced."""
    spec = manifest()["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    for old, new in replaced.items():
        container["args"] = [one.replace(old, new) for one in container["args"]]
    container["args"].append("--once")
    return {"metadata": {"name": name}, "spec": spec}


def test_the_deployment_counts(node: Cluster, tmp_path: Path) -> None:
    """A driver that makes its executors; then another one, which goes on from the checkpoint."""
    counting = CountingRun(node.bootstrap, tmp_path, "kubernetes")
    server = ApiServer(manifest()["Role"]["rules"])
    replaced = {
        "/opt/app/app.py": str(counting.program),
        "kafka:9092": node.bootstrap,
        "https://kubernetes.default.svc": server.url,
        "spark.executor.instances=2": "spark.executor.instances=1",  # two cores
    }
    with server.running(), Pods(server, tmp_path, FILES / "entrypoint").running() as pods:
        for name in ("orders-1", "orders-2"):
            counting.send()
            server.store.create("default", "pods", driver_pod(name, replaced))
            place = Place("default", "pods", name)

            def has_ended(place: Place = place) -> bool:
                return "terminated" in str(server.store.objects[place].get("status"))

            wait_for(has_ended, limit_s=LIMIT_S)
            driver = server.store.objects[place]
            assert driver["status"]["phase"] == "Succeeded", pods.log(name)[-3000:]
            counting.check()
    owners = [one["metadata"]["ownerReferences"][0]["name"] for one in pods.executors()]
    assert owners == ["orders-1", "orders-2"]
    assert not server.refused
    assert [one for one in server.store.objects if one.kind == "pods"] == [
        Place("default", "pods", name) for name in ("orders-1", "orders-2")
    ]
