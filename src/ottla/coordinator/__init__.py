"""Coordinators: state machines whose only durable state is one partition of an internal topic."""
