"""The quorum's requests and responses as messages of the protocol, in every version.

Kafka: org.apache.kafka.raft.RaftUtil.
"""
