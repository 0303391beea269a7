"""Where a run keeps what environments answer while it goes on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol


class EpisodeJournal(Protocol):
    """Where a run writes the answers of servers as they come."""

    def take(self, episode: str) -> Sequence[tuple[int, Any]]:
        """Places and answers of an episode from before this process began. What is taken is not there a second time: an
        episode that began anew has its answers after those of the first.
        """

    def whole(self, episode: str) -> Sequence[tuple[int, Any]]:
        """Places and answers of an episode of the run that is computed again; none in any other run."""

    def add(self, episode: str, place: int, entry: Any) -> None:
        """Write an answer, as plain data."""


_JOURNAL: Final[ContextVar[EpisodeJournal | None]] = ContextVar("answers of servers", default=None)
open_journal = _JOURNAL.get


@contextmanager
def journaling(journal: EpisodeJournal) -> Iterator[None]:
    """Inside, answers of servers are written there, and those that are there are not requested again."""
    token = _JOURNAL.set(journal)
    try:
        yield
    finally:
        _JOURNAL.reset(token)
