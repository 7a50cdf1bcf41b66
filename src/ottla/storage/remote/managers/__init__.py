"""Storage managers that are shipped: a directory, and object stores.

Kafka: none ships with it; its tests have LocalTieredStorage.
"""
