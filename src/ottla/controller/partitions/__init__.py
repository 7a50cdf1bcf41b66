"""Replicas of partitions: placement, leaders, in-sync replicas, reassignments, directories."""
