"""Connectors as Spark queries: the runtime `spark`, and any format of Spark as source or sink."""
