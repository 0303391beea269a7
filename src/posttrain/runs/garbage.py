"""Runs Python's garbage collector rarely during a run.

It looks through the newest objects after every 700, and now and then through all there are. Importing torch and the
like makes hundreds of thousands that stay: a twentieth of the time to the first token went into looking at them, and a
tenth of a second of every few steps of a run.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

WHILE_STARTING: Final = (100_000, 50, 100)
"""Python's thresholds, while there is little but imports."""
USUAL: Final = gc.get_threshold()


@contextmanager
def rarely_looked_for() -> Iterator[None]:
    """Until the work begins (`as_usual`), or this ends; then nothing is set aside any more."""
    own = gc.get_freeze_count() == 0
    gc.set_threshold(*WHILE_STARTING)
    try:
        yield
    finally:
        gc.set_threshold(*USUAL)
        if own:
            gc.unfreeze()


def as_usual() -> None:
    """What is there now, imported and loaded, is not looked at again; what comes is, as ever. Only the first time
    within `rarely_looked_for`: what a later call or one in somebody's own program set aside could become garbage.
    """
    if gc.get_threshold() != WHILE_STARTING:
        return
    gc.set_threshold(*USUAL)
    gc.collect()
    gc.freeze()
