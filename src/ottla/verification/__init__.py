"""Checks of all files of a stopped node: `ottla verify`, backups, branches.

Kafka: none; kafka-dump-log.sh shows one file, and a start truncates what it cannot read.
"""
