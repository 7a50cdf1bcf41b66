"""Entity types of `ottla configs`: resources, quotas, SCRAM credentials.

Kafka: none.
"""
