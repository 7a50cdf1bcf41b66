"""The consumer: subscription, fetcher, offsets, group membership, façade."""
