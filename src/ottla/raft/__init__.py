"""KRaft consensus on the metadata log; one voter so far."""
