"""Runs Python's garbage collector rarely during a run.

It traverses the newest objects after every 700, and sometimes all objects. Importing torch makes hundreds of thousands
of permanent ones. Traversing them took a twentieth of the time to the first token, and a tenth of a second every few
steps of a run.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

WHILE_STARTING: Final = (100_000, 50, 100)
"""Python's thresholds, while there is little but imports."""
USUAL: Final = gc.get_threshold()
_frozen_by: Literal["nobody", "a run", "others"] = "nobody"
"""Who froze objects, as far as is known. What others froze is counted one by one, and so only once."""


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Collect rarely until the work begins (`as_usual`) or the context ends, which unfreezes all objects."""
    global _frozen_by
    own = _frozen_by == "nobody" and gc.get_freeze_count() == 0
    if _frozen_by == "nobody" and not own:
        _frozen_by = "others"
    gc.set_threshold(*WHILE_STARTING)
    try:
        yield
    finally:
        gc.set_threshold(*USUAL)
        if own:
            gc.unfreeze()
            _frozen_by = "nobody"


def as_usual() -> None:
    """Freeze all current objects, and collect new ones at the usual rate.

    Only the first time within `rarely_collected`: objects frozen by a later call, or in a user's program, could become
    garbage.
    """
    global _frozen_by
    if gc.get_threshold() != WHILE_STARTING:
        return
    gc.set_threshold(*USUAL)
    gc.collect()
    gc.freeze()
    _frozen_by = "others" if _frozen_by == "others" else "a run"
