"""A cache of endpoint replies, so that a resumed run gets the same ones.

A step that is repeated after a crash sends the same requests. The endpoint's answers may differ by then, or its model;
therefore the earlier answers are read from ``answers.jsonl`` of the run. The file also documents every request and
every answer. It is not truncated to a checkpoint, and its order is that of the answers.

With ``models.ROLE.endpoint.store`` answers are also kept in a file that runs and commands share: what another one has
asked is not sent again. It enters ``answers.jsonl`` with no tokens, since it cost this run nothing.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.models import Budget
from posttrain.runs.journal import Journal, sound_lines
from posttrain.serving.spending import Spending, Usage, estimated
from posttrain.serving.wire import name_of

if TYPE_CHECKING:
    from posttrain.serving.client import Answers

FILE = "answers.jsonl"


class AnswerBook:
    """Answers by request; see `posttrain.serving.client.Answers`."""

    def __init__(self, folder: Path) -> None:
        """Reads the answers of the run in `folder`."""
        self._path = folder / FILE
        self._known: dict[str, str] = {}
        self._spent: dict[str, list[Usage]] = {}
        self._journal: Journal | None = None
        if self._path.is_file():
            self._open().drop_unfinished()
            for entry in sound_lines(self._path):
                self._known[entry["key"]] = entry["answer"]
                usage = Usage.read(entry.get("usage")) or estimated(entry["request"], entry["answer"])
                self._spent.setdefault(entry["role"], []).append(usage)

    def find(self, role: str, request: Mapping[str, Any]) -> str | None:
        """The answer to a request that was answered before this process began."""
        return self._known.get(name_of(role, request))

    def add(self, role: str, request: Mapping[str, Any], answer: str, usage: Usage) -> None:
        """Record an answer. Raises `RunFailed` if the file cannot be written."""
        entry = {"key": name_of(role, request), "role": role, "request": request, "answer": answer}
        self._open().append({**entry, "usage": usage.as_json})

    def spent(self, role: str) -> Sequence[Usage]:
        """Tokens of a role's answers before this process began."""
        return self._spent.get(role, [])

    def _open(self) -> Journal:
        self._journal = self._journal or Journal(self._path)
        return self._journal


def spending_of(folder: Path, budgets: Mapping[str, Budget | None]) -> dict[str, Spending]:
    """What the recorded answers of a run have cost, by role; a run without endpoints has none."""
    found = dict[str, Spending]()
    path = folder / FILE
    for entry in sound_lines(path) if path.is_file() else ():
        usage = Usage.read(entry.get("usage")) or estimated(entry["request"], entry["answer"])
        role = entry["role"]
        found.setdefault(role, Spending(role, budgets.get(role))).add(usage)
    return found


class SharedAnswers:
    """The answers of a run, and those that others keep in a store; see `posttrain.serving.client.Answers`."""

    def __init__(self, book: AnswerBook, store: "Answers") -> None:
        self._book, self._store = book, store

    def find(self, role: str, request: Mapping[str, Any]) -> str | None:
        """The run's own answer, or else one that is kept, which is the run's from then on."""
        own = self._book.find(role, request)
        if own is not None:
            return own
        kept = self._store.find(role, request)
        if kept is not None:
            self._book.add(role, request, kept, Usage(0, 0))
        return kept

    def add(self, role: str, request: Mapping[str, Any], answer: str, usage: Usage) -> None:
        """Record an answer in both."""
        self._book.add(role, request, answer, usage)
        self._store.add(role, request, answer, usage)

    def spent(self, role: str) -> Sequence[Usage]:
        """Tokens of the run's own answers before this process began."""
        return self._book.spent(role)
