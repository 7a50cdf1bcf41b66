"""Quotas: limits of users, client ids and addresses, and the throttle times beyond them."""
