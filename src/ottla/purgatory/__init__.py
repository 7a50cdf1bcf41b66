"""Deferred completion: pending results, timers, FIFO timeouts, and the purgatory."""
