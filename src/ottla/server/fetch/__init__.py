"""Reads of a Fetch at a broker: the pass over its partitions, for consumers and for followers.

Kafka: ReplicaManager.{fetchMessages, readFromLog}.
"""
