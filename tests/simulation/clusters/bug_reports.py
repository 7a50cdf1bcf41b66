"""What the product logs for users to report as a bug; in a simulation that fails the run.

Such errors are caught, so that one request or one listener does not stop the rest of a node.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class BugReports(logging.Handler):
    """Collects them."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, with its traceback, when it asks for a report."""
        if "report this" in str(record.msg):
            self.found.append(self.format(record))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Collect meanwhile, also where logging is disabled."""
        logger, disabled = logging.getLogger("ottla"), logging.root.manager.disable
        logging.disable(min(disabled, logging.WARNING))
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)
            logging.disable(disabled)

    def check(self) -> None:
        """AssertionError with the first one, if there is any."""
        assert not self.found, f"{len(self.found)} errors are to be reported: {self.found[0]}"
