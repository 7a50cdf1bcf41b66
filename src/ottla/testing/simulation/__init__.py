"""Whole nodes and clients on virtual time: one seed, one course of events.

Kafka: none; after FoundationDB's and TigerBeetle's simulators.
"""
