"""Graceful stops: Ctrl-C and SIGTERM end the run after the current step, a second Ctrl-C at once."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Records a request to stop the run, and its reason."""

    def __init__(self) -> None:
        """Without a request."""
        self.reason = ""

    @property
    def requested(self) -> bool:
        """Whether the run should end after this step."""
        return bool(self.reason)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record SIGINT and SIGTERM within the context; only in the main thread, which receives signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.reason = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        print(f"{self.reason}: finishing this step, then saving. Ctrl-C again stops at once.", file=sys.stderr)
