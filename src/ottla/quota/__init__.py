"""Quotas: limits of users, client ids and addresses, and throttle times for exceeding them."""
