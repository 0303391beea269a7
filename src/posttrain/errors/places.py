"""Messages about a task name the file and the line of its row."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from posttrain.errors import TaskFault, UserError


@contextmanager
def naming(place: Callable[[str], str]) -> Iterator[None]:
    """Put the place of a task before what is wrong with it; `place` is that of a source (`Tasks.place`)."""
    try:
        yield
    except TaskFault as fault:
        where = place(fault.key)
        if not where:
            raise
        raise UserError(f"{where}: {fault}") from None
