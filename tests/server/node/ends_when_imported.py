"""A module that ends the process when it is imported, as programs do."""

raise SystemExit("not today")
