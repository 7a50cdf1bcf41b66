"""The plan of a rolling migration from Kafka to Ottla and back: findings and steps from facts.

Pure: decides from `views.migration` facts alone. Kafka: none.
"""

from __future__ import annotations

import re
from enum import Enum
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from ottla.config.own import reserve_bytes
from ottla.metadata.features import METADATA_VERSION, METADATA_VERSION_NAMES, SUPPORTED_FEATURES
from ottla.storage.layout import FILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.views.migration import ClusterFacts, DynamicFacts, NodeFacts

_FIRST_RELEASE_LEVEL = 22
"""metadata.version 4.0-IV0: brokers that support less are older than Kafka 4.0."""
_SAFE_VOTERS = 3
"""With fewer voters there is no majority while a controller restarts."""
_MAX_NAMES = 5
_SERVERS = "$BOOTSTRAP"
_DEFAULT_RESERVE = -1
# Kafka's script does not wait; the brackets keep pgrep from finding the shell that runs it.
_STOP_KAFKA = (
    "bin/kafka-server-stop.sh --node-id={node}; "
    "while pgrep -f {pattern} >/dev/null; do sleep 1; done"
)
_START_OTTLA = "nohup ottla server-start {file} --log-file ottla-{node}.log >/dev/null 2>&1 &"


class Impact(Enum):
    """How a finding counts; only obstacles make a plan not ready."""

    OBSTACLE = "obstacle"
    CHECK = "check"
    IGNORED = "ignored"
    WAY_BACK = "way back"


class MigrationFinding(NamedTuple):
    """A fact to act on; node is None for the cluster."""

    impact: Impact
    node: int | None
    what: str
    meaning: str
    next_step: str

    def __str__(self) -> str:
        scope = "cluster" if self.node is None else f"node {self.node}"
        return f"{self.impact.value}: {scope}: {self.what}: {self.meaning}. Next: {self.next_step}."


class MigrationStep(NamedTuple):
    """One node and the commands to run, in order."""

    node: int
    roles: tuple[str, ...]
    is_active_controller: bool
    stop: str
    """Returns when the process has ended."""
    start: str
    in_sync: str


class MigrationPlan(NamedTuple):
    """Steps of both directions, and the findings."""

    before: str
    steps: list[MigrationStep]
    way_back: list[MigrationStep]
    findings: list[MigrationFinding]

    @property
    def is_ready(self) -> bool:
        """Whether no finding is an obstacle."""
        return all(finding.impact is not Impact.OBSTACLE for finding in self.findings)


def make_plan(
    cluster: ClusterFacts | None, nodes: Sequence[NodeFacts], command_config: str | None = None
) -> MigrationPlan:
    """Return the plan; without a cluster, of the files and directories alone."""
    servers = _SERVERS
    if cluster is not None:
        # a cluster may name any text as a host
        servers = quote(",".join(broker.address for _, broker in sorted(cluster.brokers.items())))
    login = "" if command_config is None else f" --command-config {quote(command_config)}"
    health = f"ottla cluster health --bootstrap-server {servers}{login}"
    active = None if cluster is None else cluster.health.active_controller
    ordered = sorted(
        nodes, key=lambda one: (one.node_id == active, "controller" in one.roles, one.node_id)
    )
    in_sync = f"until {health}; do sleep 2; done"

    def steps(ordered: Iterable[NodeFacts], stop: str, start: str) -> list[MigrationStep]:
        return [
            MigrationStep(
                one.node_id,
                one.roles,
                one.node_id == active,
                stop.format(node=one.node_id, file=quote(one.file), pattern=_pattern(one.file)),
                start.format(node=one.node_id, file=quote(one.file)),
                in_sync,
            )
            for one in ordered
        ]

    findings = [finding for one in ordered for finding in _of_node(one, cluster)]
    findings += _of_files(ordered, cluster)
    if cluster is not None:
        findings += [*_of_health(cluster), *_of_software(cluster), *_of_topics(cluster)]
        findings += _of_work(cluster)
    findings.sort(key=lambda finding: list(Impact).index(finding.impact))
    return MigrationPlan(
        health,
        steps(ordered, _STOP_KAFKA, _START_OTTLA),
        steps(
            reversed(ordered),
            "ottla server-stop {file}",
            "bin/kafka-server-start.sh -daemon {file}",
        ),
        findings,
    )


def _pattern(file: str) -> str:
    """Return the pattern of the command line of the Kafka node with this file, quoted."""
    return quote("kafka[.]Kafka .*" + re.sub(r"[.*+?()|$[{]", r"[\g<0>]", file))


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _sentence(text: str) -> str:
    return " ".join(text.split()).removesuffix(".")


def _of_node(one: NodeFacts, cluster: ClusterFacts | None) -> Iterator[MigrationFinding]:
    """Yield the findings of a properties file and of its directories."""
    for problem in one.problems:
        yield MigrationFinding(
            Impact.OBSTACLE,
            one.node_id,
            problem.name,
            _sentence(problem.message.removeprefix(f"{problem.name}: ")),
            f"change {one.file}; `ottla server-start --check {quote(one.file)}` shows the rest",
        )
    for warning in one.warnings:
        yield MigrationFinding(
            Impact.IGNORED,
            one.node_id,
            one.file,
            _sentence(warning),
            "nothing, unless the setting is needed",
        )
    for path in one.missing_directories:
        yield MigrationFinding(
            Impact.CHECK,
            one.node_id,
            path,
            "the directory is not on this machine and was not looked at",
            f"run `ottla migrate plan --properties {quote(one.file)}` on the node's machine",
        )
    yield from _of_directories(one, cluster)
    yield from _of_dynamic(one)
    for text in one.python_classes:
        yield MigrationFinding(
            Impact.WAY_BACK,
            one.node_id,
            text,
            "Kafka cannot load a Python class",
            "keep the file with the Java class, and start Kafka with it",
        )
    if one.own_settings:
        yield MigrationFinding(
            Impact.WAY_BACK,
            one.node_id,
            _names(one.own_settings),
            "Kafka has no such settings and ignores them",
            "nothing",
        )


def _of_dynamic(one: NodeFacts) -> Iterator[MigrationFinding]:
    """Yield the settings in the metadata, which a node of either kind reads."""
    for setting in one.dynamic:
        if setting.problem is not None:
            yield MigrationFinding(
                Impact.CHECK,
                one.node_id,
                f"dynamic setting {setting.name}",
                _sentence(f"Ottla does not apply it: {setting.problem}"),
                "delete it with `ottla configs --alter --entity-type brokers`, or do without",
            )
    if names := [_dynamic_text(setting) for setting in one.dynamic if setting.problem is None]:
        yield MigrationFinding(
            Impact.CHECK,
            one.node_id,
            _names(names),
            "dynamic settings, which stay in the metadata and rule over the file both ways",
            "nothing",
        )


def _dynamic_text(setting: DynamicFacts) -> str:
    value = "(hidden)" if setting.value is None else setting.value
    own = "" if setting.file_value is None else f" (file: {setting.file_value})"
    return f"{setting.name}={value}{own}"


def _of_directories(one: NodeFacts, cluster: ClusterFacts | None) -> Iterator[MigrationFinding]:
    expected = "" if cluster is None else cluster.health.cluster_id
    for found in one.directories:
        meaning = next_step = ""
        if found.problem is not None:
            meaning, next_step = _sentence(found.problem), "repair or format the directory"
        elif found.node_id != one.node_id:
            meaning = f"it is a directory of node {found.node_id}"
            next_step = f"set node.id or log.dirs in {one.file}"
        elif expected and found.cluster_id != expected:
            meaning = f"it is of cluster {found.cluster_id}, not {expected}"
            next_step = f"set log.dirs in {one.file}, or name the other cluster's server"
        if meaning:
            yield MigrationFinding(Impact.OBSTACLE, one.node_id, found.path, meaning, next_step)
        if cluster is None and _is_short(found.total_bytes, found.usable_bytes):
            yield _short_of_space(one.node_id, found.path, found.usable_bytes)


def _is_short(total_bytes: int, usable_bytes: int) -> bool:
    return total_bytes > 0 and usable_bytes < reserve_bytes(_DEFAULT_RESERVE, total_bytes)


def _short_of_space(node: int, path: str, usable_bytes: int) -> MigrationFinding:
    return MigrationFinding(
        Impact.OBSTACLE,
        node,
        path,
        f"{usable_bytes / 1e6:,.0f} MB are free, less than log.dir.reserve.bytes: "
        "Ottla refuses produces",
        "free space, or set log.dir.reserve.bytes=0 as in Kafka",
    )


def _of_files(
    nodes: Sequence[NodeFacts], cluster: ClusterFacts | None
) -> Iterator[MigrationFinding]:
    """Yield what the files say together."""
    ids = [one.node_id for one in nodes]
    for node in sorted({node for node in ids if ids.count(node) > 1}):
        files = _names([one.file for one in nodes if one.node_id == node])
        yield MigrationFinding(
            Impact.OBSTACLE,
            node,
            files,
            "they have the same node.id",
            "name each node's file once",
        )
    if cluster is None:
        yield MigrationFinding(
            Impact.CHECK,
            None,
            "no --bootstrap-server",
            "the order does not know the active controller, and no partition was looked at",
            "run the plan again with --bootstrap-server before the first step",
        )
    else:
        known = {*cluster.brokers, *cluster.health.controllers}
        for node in sorted(known - set(ids)):
            yield MigrationFinding(
                Impact.OBSTACLE,
                node,
                "no properties file",
                "the plan lacks this node",
                "name its server.properties with --properties",
            )
        for node in sorted(set(ids) - known):
            yield MigrationFinding(
                Impact.OBSTACLE,
                node,
                "not in the cluster",
                "no running broker and no voter has this node.id",
                "start the node, or leave out its file",
            )
    kept = ", ".join(f"{kind.folder.value}/{kind.name}" for kind in FILES if not kind.is_kafkas)
    yield MigrationFinding(
        Impact.WAY_BACK,
        None,
        kept,
        "files that Ottla adds, which Kafka ignores",
        "nothing",
    )


def _of_health(cluster: ClusterFacts) -> Iterator[MigrationFinding]:
    """Yield what has to be repaired before a node is stopped."""
    health = cluster.health
    if health.active_controller < 0:
        yield _obstacle("no active controller", "nothing can change", "start the controllers")
    wait = "wait until `ottla cluster health` says yes"
    for names, meaning, next_step in (
        (health.leaderless_partitions, "partitions without leader", "start their brokers"),
        (
            health.under_replicated_partitions,
            "under-replicated partitions: they may go offline with the next broker",
            wait,
        ),
        (health.offline_log_directories, "offline log directories", "repair or replace the disk"),
        (health.full_log_directories, "log directories without space", "free space"),
        (list(map(str, health.brokers_down)), "brokers that are down or fenced", "start them"),
        (
            list(map(str, health.controllers_behind)),
            "controllers whose metadata log is behind the leader's",
            wait,
        ),
    ):
        if names:
            yield _obstacle(_names(names), meaning, next_step)
    full = {name.rpartition(" of broker ")[0] for name in health.full_log_directories}
    for disk in cluster.disks:
        if disk.path not in full and _is_short(disk.total_bytes, disk.usable_bytes):
            yield _short_of_space(disk.broker, disk.path, disk.usable_bytes)
    if len(health.controllers) < _SAFE_VOTERS:
        yield MigrationFinding(
            Impact.CHECK,
            None,
            f"{len(health.controllers)} voters",
            "metadata cannot change while a controller restarts",
            "add controllers first, or accept a pause",
        )


def _obstacle(what: str, meaning: str, next_step: str) -> MigrationFinding:
    return MigrationFinding(Impact.OBSTACLE, None, what, meaning, next_step)


def level_name(level: int) -> str:
    """Return the release's name of a metadata.version, the number for an unknown one."""
    return METADATA_VERSION_NAMES.get(level, str(level))


def release_of(level: int) -> str:
    """Return the Kafka release whose brokers support metadata.version up to this level."""
    return level_name(level).partition("-")[0]


def _of_software(cluster: ClusterFacts) -> Iterator[MigrationFinding]:
    """Yield what the versions of brokers and the features of the cluster prevent."""
    for node, broker in sorted(cluster.brokers.items()):
        if broker.metadata_version < _FIRST_RELEASE_LEVEL:
            yield MigrationFinding(
                Impact.OBSTACLE,
                node,
                f"metadata.version up to {level_name(broker.metadata_version)}",
                "the broker is older than Kafka 4.0",
                "upgrade it to Kafka 4.0 or later first, in KRaft mode",
            )
    for name, (_, level) in sorted(cluster.finalized.items()):
        supported = SUPPORTED_FEATURES.get(name)
        if supported is None:
            meaning = "Ottla does not know the feature"
        elif level not in supported:
            meaning = f"Ottla supports {supported.low} to {supported.high}"
        else:
            continue
        if level:
            yield _obstacle(
                f"{name}={level}",
                meaning,
                f"`ottla features downgrade --feature {quote(f'{name}=LEVEL')}`, if the cluster "
                "allows it",
            )
    levels = [broker.metadata_version for broker in cluster.brokers.values()]
    ours = SUPPORTED_FEATURES[METADATA_VERSION].high
    if levels and min(levels) < ours:
        yield MigrationFinding(
            Impact.WAY_BACK,
            None,
            f"brokers of Kafka {release_of(min(levels))}",
            "they do not start any more once features were raised above theirs; Ottla raises none",
            "do not run `ottla features upgrade` until you stay with Ottla",
        )


def _of_topics(cluster: ClusterFacts) -> Iterator[MigrationFinding]:
    """Yield the topics that a broker's restart interrupts."""
    single, strict = [], []
    for topic in cluster.topics:
        factor = min((one.replication_factor for one in topic.partitions), default=0)
        if factor == 1:
            single.append(topic.name)
        elif factor and topic.min_insync_replicas >= factor:
            strict.append(topic.name)
    add = "`ottla reassign-partitions` adds replicas; or accept a pause of each restart"
    if single:
        yield MigrationFinding(
            Impact.CHECK,
            None,
            _names(single),
            "one replica: their partitions are offline while its broker restarts",
            add,
        )
    if strict:
        yield MigrationFinding(
            Impact.CHECK,
            None,
            _names(strict),
            "min.insync.replicas equals the replication factor: produces with acks=all wait "
            "while a broker restarts",
            "lower min.insync.replicas for the migration; or accept a pause of each restart",
        )


def _of_work(cluster: ClusterFacts) -> Iterator[MigrationFinding]:
    """Yield the work in progress that a restart prolongs."""
    if cluster.reassignments:
        yield MigrationFinding(
            Impact.CHECK,
            None,
            _names(cluster.reassignments),
            "reassignments in progress: each restart delays them",
            "wait until `ottla reassign-partitions --list` shows none",
        )
    if cluster.hanging_transactions:
        yield MigrationFinding(
            Impact.CHECK,
            None,
            _names(cluster.hanging_transactions),
            "hanging transactions: they hold back consumers, before the migration and after it",
            "`ottla transactions abort`",
        )


def plan_document(
    plan: MigrationPlan, cluster: ClusterFacts | None, nodes: Sequence[NodeFacts]
) -> dict[str, object]:
    """Return the JSON of a plan with the facts that it was made from."""
    return {
        "ready": plan.is_ready,
        "cluster": None if cluster is None else _cluster_document(cluster),
        "nodes": [
            {
                "node": one.node_id,
                "roles": list(one.roles),
                "file": one.file,
                "log_directories": [found._asdict() for found in one.directories],
                "missing_directories": list(one.missing_directories),
                "dynamic_settings": [
                    {
                        "name": setting.name,
                        "value": setting.value,
                        "file": setting.file_value,
                        "problem": setting.problem,
                    }
                    for setting in one.dynamic
                ],
            }
            for one in nodes
        ],
        "findings": [
            {**finding._asdict(), "impact": finding.impact.value} for finding in plan.findings
        ],
        "before": plan.before,
        "steps": [step._asdict() for step in plan.steps],
        "way_back": [step._asdict() for step in plan.way_back],
    }


def _cluster_document(cluster: ClusterFacts) -> dict[str, object]:
    return {
        "health": cluster.health.document(),
        "brokers": [
            {"node": node, **broker._asdict(), "release": release_of(broker.metadata_version)}
            for node, broker in sorted(cluster.brokers.items())
        ],
        "features": {name: levels.highest for name, levels in sorted(cluster.finalized.items())},
        "topics": [topic.document(topic.partitions) for topic in cluster.topics],
        "reassignments": cluster.reassignments,
        "groups": dict(cluster.groups),
        "open_transactions": cluster.open_transactions,
        "hanging_transactions": cluster.hanging_transactions,
        "acls": cluster.acls,
        "quotas": cluster.quotas,
        "scram_users": cluster.scram_users,
    }
