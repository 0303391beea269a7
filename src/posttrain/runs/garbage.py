"""Runs Python's garbage collector rarely during a run.

It traverses the newest objects after every 700, and sometimes all objects. Importing torch makes hundreds of thousands
of permanent ones. Traversing them took a twentieth of the time to the first token, and a tenth of a second every few
steps of a run.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

WHILE_STARTING: Final = (100_000, 50, 100)
"""Python's thresholds, while there is little but imports."""
USUAL: Final = gc.get_threshold()


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Collect rarely until the work begins (`as_usual`) or the context ends, which unfreezes all objects."""
    own = gc.get_freeze_count() == 0
    gc.set_threshold(*WHILE_STARTING)
    try:
        yield
    finally:
        gc.set_threshold(*USUAL)
        if own:
            gc.unfreeze()


def as_usual() -> None:
    """Freeze all current objects, and collect new ones at the usual rate.

    Only the first time within `rarely_collected`: objects frozen by a later call, or in a user's program, could become
    garbage.
    """
    if gc.get_threshold() != WHILE_STARTING:
        return
    gc.set_threshold(*USUAL)
    gc.collect()
    gc.freeze()
