"""Decides about topics, brokers and settings: operations make records, replay makes state."""
