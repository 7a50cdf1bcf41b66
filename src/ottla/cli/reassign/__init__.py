"""`ottla reassign-partitions`: its plans, throttles and actions."""
