"""Assignors of the classic group protocol, by the names that other clients use."""
