"""A bound on the pixels that threads hold decoded at a time, so that memory does not grow with the number of cores."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class PixelBudget:
    """Lets threads hold ``limit`` pixels together; one that wants more than that waits until it is alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = 0
        self._changed = Condition()

    @contextmanager
    def holding(self, pixels: int) -> Iterator[None]:
        """Wait until there is room for so many pixels, and hold it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held + pixels <= self.limit)
            self._held += pixels
        try:
            yield
        finally:
            with self._changed:
                self._held -= pixels
                self._changed.notify_all()
