"""Tables of databases to topics, and topics to tables: PostgreSQL, MariaDB, MySQL and SQLite.

Kafka: Confluent's io.confluent.connect.jdbc, whose settings and offsets these connectors take. The
libraries are the extra `ottla[jdbc]`.
"""
