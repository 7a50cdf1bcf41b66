"""Topics to a directory of CSV, JSON lines and Parquet files.

Kafka: none. Parquet needs pyarrow, of the extra `tables`.
"""
