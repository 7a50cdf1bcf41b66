"""A real Prometheus scrapes a real node, and reads the shipped dashboard's expressions."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla
from ottla.testing.cluster import Cluster
from tests.conformance.promtool import promtool_or_skip
from tests.ports import free_ports
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.conformance
SHIPPED = Path(ottla.__file__).parent / "metrics"
WAIT_S = 90.0


def expressions() -> list[str]:
    """Return the dashboard's expressions with its variables filled in."""
    dashboard = json.loads((SHIPPED / "ottla-dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return [
        re.sub(r"\$(instance|topic|group)\b", ".*", one).replace("$__rate_interval", "1m")
        for one in found
    ]


@contextmanager
def prometheus(program: Path, directory: Path, target: str) -> Iterator[str]:
    """Run Prometheus over one node; yield its address."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(SHIPPED / "ottla-rules.yml")],
        "scrape_configs": [{"job_name": "ottla", "static_configs": [{"targets": [target]}]}],
    }
    path = directory / "prometheus.yml"
    path.write_text(json.dumps(config))  # which is YAML too
    (port,) = free_ports(1)
    arguments = [
        str(program),
        f"--config.file={path}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}/api/v1"
    finally:
        process.terminate()
        process.wait(WAIT_S)


def get(url: str) -> Any:
    """Return the data of an answer of Prometheus's API; None while it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def query(api: str, expression: str) -> list[Any]:
    """Return the result of an expression."""
    found = get(f"{api}/query?query={urllib.parse.quote(expression)}")
    return [] if found is None else list(found["result"])


def health(api: str) -> tuple[str, str, list[str]]:
    """Return what is known of the only target, and whether its last scrape was an answer."""
    [state] = get(f"{api}/targets?state=active")["activeTargets"]
    return state["health"], state["lastError"], [one["value"][1] for one in query(api, "up")]


@pytest.mark.parametrize("spelling", ["classic", "reporter"])
def test_prometheus_scrapes_a_node_and_the_dashboard_has_data(
    tmp_path: Path, spelling: str
) -> None:
    """The target is healthy, no alert of the rule file fires, every panel's expression is data."""
    program = promtool_or_skip().with_name("prometheus")
    with Cluster(config={"metrics.listener": "127.0.0.1:0", "metrics.names": spelling}) as cluster:
        with ottla.Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send("topic", b"x").result(WAIT_S)
        with ottla.Consumer(
            bootstrap_servers=cluster.bootstrap, group_id="group", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["topic"])
            while not consumer.poll(1.0):
                pass
            consumer.commit()
        target = cluster.metrics_url.removeprefix("http://").removesuffix("/metrics")
        with prometheus(program, tmp_path, target) as api:
            wait_for(lambda: query(api, "count_over_time(up[1m]) > 3"), WAIT_S)
            # a scrape of a busy machine may be late: the one after it is not
            wait_for(lambda: health(api) == ("up", "", ["1"]), WAIT_S)
            assert query(api, 'ALERTS{alertstate="firing"}') == []
            empty = [one for one in expressions() if not query(api, one)]
    assert empty == []


def test_prometheus_reads_the_dashboards_expressions(tmp_path: Path) -> None:
    """Each expression of the dashboard is one that promtool accepts in a rule."""
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(expressions())]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        [promtool_or_skip(), "check", "rules", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout
