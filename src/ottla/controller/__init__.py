"""The controller: operations return records, and replaying records builds its state."""
