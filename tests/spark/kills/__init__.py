"""Queries, nodes and executors that are killed at random, for `scripts/kill_pipeline.py`."""
