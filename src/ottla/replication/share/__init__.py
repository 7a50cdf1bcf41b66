"""The leader's side of share groups (KIP-932): which records are out with whom, in what state.

Kafka: kafka.server.share, org.apache.kafka.server.share.
"""
