"""Share groups at a broker (KIP-932): persistence, partitions, sessions, waiting fetches.

Kafka: kafka.server.share, org.apache.kafka.server.share.persister.
"""
