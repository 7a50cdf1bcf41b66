"""`python -m ottla`."""

from ottla.cli.main import main

main()
