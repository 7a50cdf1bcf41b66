"""Spark's JVM on this machine: Java, its class archive, its start, and a session in it."""
