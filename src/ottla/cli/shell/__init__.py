"""`ottla metadata-shell`: browse the cluster's metadata in a snapshot or log as files.

Kafka: org.apache.kafka.shell.
"""
