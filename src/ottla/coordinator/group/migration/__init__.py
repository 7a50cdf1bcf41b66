"""Groups with members of both protocols, and groups that change their kind.

Kafka: the online migration of GroupMetadataManager (KIP-848).
"""
