"""Kafka Connect: data in and out of topics by connectors, whose volume runs as Spark work.

`data` and `records` are the values that connectors, transforms and converters exchange; `connector`
is the contract of connectors. The runtime finds plug-ins, runs tasks and serves the REST API.

Kafka: org.apache.kafka.connect.
"""

from typing import Final

PLUGIN_VERSION: Final = "4.3.0"
"""The version of the plug-ins that Kafka brings, which configurations may ask for (KIP-891)."""
