"""The tool of consumer, share and streams groups, and its offset resets.

Kafka: none.
"""
