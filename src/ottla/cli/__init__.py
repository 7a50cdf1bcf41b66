"""The kafka-*.sh tools as `ottla` commands, one module each."""
