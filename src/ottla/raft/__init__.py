"""How controllers agree on one log (KRaft): today with one voter, in the shape for many."""
