"""Quotas: how much users, client ids and addresses may use, and how long they wait beyond that."""
