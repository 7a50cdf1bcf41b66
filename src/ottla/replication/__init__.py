"""Partitions as replicas: leadership, high watermark, fetch sessions and waiting operations."""
