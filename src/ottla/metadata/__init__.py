"""What the cluster knows about itself: the records, and the state that they add up to."""
