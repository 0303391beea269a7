"""Answers of environments, written as they come.

Those of servers are not requested again by a resumed run. Where rollouts go on over several steps
(`schedule=streaming`) those of every environment are written, and `posttrain replay` takes them all from here.

A server may charge for an answer, change what it is about, or answer differently the second time. Each of its answers
is a line of ``environments.jsonl`` of the run, which is never cut. A checkpoint has the size that the file had; a
resumed run takes what was written after that from the file.

A line reaches the system before the episode goes on: after a kill at most an answer that was on its way is requested
again. A power cut may lose the last lines too; they are forced to the disk with the next checkpoint.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from posttrain.runs.journal import Journal, sound_lines_after

FILE: Final = "environments.jsonl"
_GONE_BACK: Final = "gone back"
"""In the line of an alarm that took the run back: what is before it belongs to other draws."""


class EpisodeJournal:
    """See `posttrain.components.environments.EpisodeJournal`."""

    def __init__(self, folder: Path) -> None:
        """Of the run in `folder`; `go_on` reads what is there."""
        self._path = self._read = folder / FILE
        self._found: dict[str, deque[list[tuple[int, Any]]]] = {}
        self._follows = False
        self._journal: Journal | None = None

    def go_on(self, position: Mapping[str, int]) -> None:
        """Take the answers that were written after a checkpoint, whose position has the size of the file then."""
        self._found = {}
        if self._path.is_file():
            self._open().end_line()
        if not self._read.is_file():
            return
        for line in sound_lines_after(self._read, position.get(FILE, 0)):
            if line.get("kind") == _GONE_BACK:
                self._found = {}
            elif isinstance(line.get("place"), int):
                self._take_in(str(line.get("episode")), line["place"], line.get("answer"))

    def _take_in(self, episode: str, place: int, answer: Any) -> None:
        begun = self._found.setdefault(episode, deque())
        if self._follows:  # what was answered last: all before it was played again, or given up
            last = begun.popleft() if begun else []
            begun.append([*(one for one in last if one[0] < place), (place, answer)])
            return
        if not begun or place <= begun[-1][-1][0]:
            begun.append([])
        begun[-1].append((place, answer))

    def follow(self, folder: Path) -> None:
        """Take the answers of another run, which is computed again."""
        self._read, self._follows = folder / FILE, True

    def take(self, episode: str) -> Sequence[tuple[int, Any]]:
        """Places and answers of an episode before this process began, once."""
        episodes = self._found.get(episode)
        return episodes.popleft() if episodes else ()

    def whole(self, episode: str) -> Sequence[tuple[int, Any]]:
        """All answers of an episode of the run that is computed again; none in any other run."""
        return self.take(episode) if self._follows else ()

    def add(self, episode: str, place: int, entry: Any) -> None:
        """Write an answer. Raises `RunFailed` if that is not possible."""
        self._open().append({"episode": episode, "place": place, "answer": entry})

    def of(self, name: str) -> "EpisodesOf":
        """For an evaluation by its name: those of other steps have the same keys of draws."""
        return EpisodesOf(self, name)

    def position(self) -> dict[str, int]:
        """The size of the file, forced to the disk; nothing where there is none."""
        if self._journal is None:
            return {}
        self._journal.sync()
        return {FILE: self._journal.size}

    def go_back(self) -> None:
        """The run goes back and draws anew: none of the answers so far is one to what it requests from now on."""
        self._found = {}
        if self._journal is not None:
            self._journal.append({"kind": _GONE_BACK})
            self._journal.sync()

    def close(self) -> None:
        """Close the file."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _open(self) -> Journal:
        self._journal = self._journal or Journal(self._path)
        return self._journal


@dataclass(frozen=True, slots=True)
class EpisodesOf:
    """The episodes of one evaluation in the journal of a run."""

    journal: EpisodeJournal
    name: str

    def take(self, episode: str) -> Sequence[tuple[int, Any]]:
        """As that of the run."""
        return self.journal.take(f"{self.name} {episode}")

    def whole(self, episode: str) -> Sequence[tuple[int, Any]]:
        """As that of the run."""
        return self.journal.whole(f"{self.name} {episode}")

    def add(self, episode: str, place: int, entry: Any) -> None:
        """As that of the run."""
        self.journal.add(f"{self.name} {episode}", place, entry)
