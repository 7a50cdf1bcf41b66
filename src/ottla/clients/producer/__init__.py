"""The producer: partitioner, accumulator, sender, façade."""
