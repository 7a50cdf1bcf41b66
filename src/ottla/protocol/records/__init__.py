"""Schemas of records on disk, in the same notation as messages on the wire."""
