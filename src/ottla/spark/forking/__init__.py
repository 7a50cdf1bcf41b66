"""Spark's Python processes forked from one that has imported what they need.

Kafka: none; Spark: PythonWorkerFactory, pyspark/daemon.py; Python: multiprocessing.forkserver.

Spark starts a daemon for each kind of question to a data source and for its tasks, and each worker
of a daemon imports PySpark, pyarrow and this package again: half a second of CPU each, one after
the other, about ten of them for a first query. A local session has one process that imports them
while the JVM starts (`server`). What Spark runs as its Python is a script (`launcher`), by which
that process forks Spark's daemons. They share its memory. Where it cannot be reached the script
runs Python.
"""
