"""The blocking admin client.

Kafka: org.apache.kafka.clients.admin.Admin, with each future awaited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.admin.admin import AsyncAdmin
from ottla.clients.loops import Blocking, LoopThread, blocking
from ottla.clients.settings import refuse_positional

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Never, Unpack

    from ottla.clients.keywords import AdminSettings
    from ottla.clients.metric_windows import MetricName


class Admin(Blocking):
    """Manages a cluster. Use as `with Admin(...) as admin`; may be shared by threads.

    Parameters:
        config: settings under Kafka's dotted names, such as `{"bootstrap.servers": "host:9092"}`.
        settings: the same as keywords; `bootstrap_controllers` for controllers (KIP-919).

    Methods on several resources return an outcome for each, which may be a KafkaError; methods on
    one resource raise it. Every method retries for `timeout` seconds, by default
    default.api.timeout.ms.

        >>> with Admin(bootstrap_servers=servers) as admin:
        ...     admin.create_topic("orders", partitions=3, configs={"retention.ms": 3600000})
        ...     [topic.name for topic in admin.list_topics(include_internal=False)]
        ...     admin.create_partitions({"orders": 4, "missing": 2})
        CreatedTopic(name='orders', topic_id=..., partitions=3, replication_factor=1)
        ['orders']
        {'orders': None, 'missing': UnknownTopicOrPartitionError(...)}
    """

    def __init__(
        self,
        *refused: Never,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        refuse_positional("Admin", refused)
        self._async = AsyncAdmin(config=config, **settings)
        self._thread = LoopThread("ottla-admin", self._async.closed_error)
        self._thread.call(self._async.start())

    wait_connected = blocking(AsyncAdmin.wait_connected)
    create_topics = blocking(AsyncAdmin.create_topics)
    create_topic = blocking(AsyncAdmin.create_topic)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    delete_topic = blocking(AsyncAdmin.delete_topic)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    delete_records = blocking(AsyncAdmin.delete_records)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    alter_configs = blocking(AsyncAdmin.alter_configs)
    list_config_resources = blocking(AsyncAdmin.list_config_resources)
    list_groups = blocking(AsyncAdmin.list_groups)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    describe_streams_groups = blocking(AsyncAdmin.describe_streams_groups)
    describe_share_groups = blocking(AsyncAdmin.describe_share_groups)
    list_share_group_offsets = blocking(AsyncAdmin.list_share_group_offsets)
    alter_share_group_offsets = blocking(AsyncAdmin.alter_share_group_offsets)
    delete_share_group_offsets = blocking(AsyncAdmin.delete_share_group_offsets)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    list_group_offsets = blocking(AsyncAdmin.list_group_offsets)
    alter_group_offsets = blocking(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)
    remove_group_members = blocking(AsyncAdmin.remove_group_members)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    fence_producers = blocking(AsyncAdmin.fence_producers)
    alter_partition_reassignments = blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = blocking(AsyncAdmin.list_partition_reassignments)
    alter_replica_log_dirs = blocking(AsyncAdmin.alter_replica_log_dirs)
    describe_replica_log_dirs = blocking(AsyncAdmin.describe_replica_log_dirs)
    describe_client_quotas = blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = blocking(AsyncAdmin.alter_client_quotas)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)
    describe_features = blocking(AsyncAdmin.describe_features)
    api_versions = blocking(AsyncAdmin.api_versions)
    update_features = blocking(AsyncAdmin.update_features)
    describe_metadata_quorum = blocking(AsyncAdmin.describe_metadata_quorum)
    add_raft_voter = blocking(AsyncAdmin.add_raft_voter)
    remove_raft_voter = blocking(AsyncAdmin.remove_raft_voter)
    unregister_broker = blocking(AsyncAdmin.unregister_broker)
    describe_acls = blocking(AsyncAdmin.describe_acls)
    create_acls = blocking(AsyncAdmin.create_acls)
    delete_acls = blocking(AsyncAdmin.delete_acls)
    create_delegation_token = blocking(AsyncAdmin.create_delegation_token)
    renew_delegation_token = blocking(AsyncAdmin.renew_delegation_token)
    expire_delegation_token = blocking(AsyncAdmin.expire_delegation_token)
    describe_delegation_tokens = blocking(AsyncAdmin.describe_delegation_tokens)
    alter_user_scram_credentials = blocking(AsyncAdmin.alter_user_scram_credentials)
    describe_user_scram_credentials = blocking(AsyncAdmin.describe_user_scram_credentials)
    client_instance_id = blocking(AsyncAdmin.client_instance_id)
    request = blocking(AsyncAdmin.request)

    def metrics(self) -> dict[MetricName, float | str]:
        """Return the client's metrics; see AsyncAdmin.metrics."""
        return self._async.metrics()

    def close(self) -> None:
        """Close all connections; idempotent."""
        if not self._async.is_closed:
            self._thread.call(self._async.close())
            self._thread.stop()
