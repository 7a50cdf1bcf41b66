"""What tests of users (and our own) need: a real node in the process, faults, simulated disks."""
