"""Verdicts and answers that are kept between commands, so that nothing is asked of a judge twice.

A SQLite file of values by the digest of what was asked: of a judge (its reward with all settings, and its models), the
task, the answers in their order, and the repetition; of an endpoint, the request with model, sampling and seed. Each
batch is one transaction, so a kill loses at most the batch that was being asked. Several processes may share a file.
"""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.errors import RunFailed, UserError
from posttrain.errors.foreign import parse_json
from posttrain.serving.spending import Usage
from posttrain.serving.wire import name_of

if TYPE_CHECKING:
    from posttrain.serving.client import Remote

_PART = 500
"""Keys of one look-up."""


def digest(*parts: Any) -> bytes:
    """A key of JSON values."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).digest()


class VerdictStore:
    """Values by key in a file."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or creates it. Raises `UserError` for one that is no store."""
        self.path = path
        if not path.absolute().parent.is_dir():
            raise UserError(f"no folder {path.parent} for the store {path.name}; make it first")
        try:
            # A step that is sampled ahead sends its requests from a thread of its own.
            self._connection = sqlite3.connect(path, timeout=60.0, check_same_thread=False)
            self._lock = threading.Lock()
            with self._connection as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")  # a kill loses nothing, a power cut the last batches
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
                )
        except sqlite3.Error as error:
            raise UserError(f"{path} cannot be used as a store of verdicts: {error}; name another file") from None

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Any]:
        """The values of those keys that are there; a value that is no JSON is as good as none."""
        found: dict[bytes, Any] = {}
        for start in range(0, len(keys), _PART):
            part = keys[start : start + _PART]
            places = ",".join("?" * len(part))
            with (
                self._lock,
                closing(self._connection.execute(f"SELECT key, value FROM kept WHERE key IN ({places})", part)) as rows,
            ):
                for key, text in rows:
                    try:
                        found[key] = parse_json(text)
                    except (ValueError, RecursionError):
                        continue
        return found

    def add(self, values: Mapping[bytes, Any]) -> None:
        """Keep values, in one transaction. Raises `RunFailed` where the file cannot be written."""
        try:
            with self._lock, self._connection as connection:
                rows: Iterable[tuple[bytes, str]] = [(key, json.dumps(value)) for key, value in values.items()]
                connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise RunFailed(f"{self.path} cannot be written: {error}; what was kept before is there") from None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class StoredAnswers:
    """The answers of endpoints in a store; see `posttrain.serving.client.Answers`. Runs may share it."""

    def __init__(self, store: VerdictStore, where: str) -> None:
        """`where` is the address of the endpoint: equal requests to different ones are different."""
        self._store, self._where = store, where

    def find(self, role: str, request: Mapping[str, Any]) -> str | None:
        """The kept answer to a request, whatever role asked."""
        key = digest("answer", self._where, name_of("", request))
        found = self._store.find([key]).get(key)
        return found if isinstance(found, str) else None

    def add(self, role: str, request: Mapping[str, Any], answer: str, usage: Usage) -> None:
        """Keep an answer."""
        self._store.add({digest("answer", self._where, name_of("", request)): answer})

    def spent(self, role: str) -> Sequence[Usage]:
        """None: what the store holds cost other commands something, and this one nothing."""
        return ()


def shared_store(remote: "Remote") -> StoredAnswers | None:
    """The store that an endpoint's settings name; None for none."""
    name = remote.settings.store
    return None if name is None else StoredAnswers(VerdictStore(Path(name)), remote.url)
