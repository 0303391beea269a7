r"""Rankings of one's own in the files of TREC: queries, documents, grades (qrels) and the run of a first search.

    posttrain run reasonrank 'tasks={kind: trec, queries: topics.tsv, documents: corpus.jsonl, qrels: qrels.txt,
        results: bm25.run}'

Source: the formats of trec_eval, https://github.com/usnistgov/trec_eval, and of BEIR, arXiv:2104.08663.

    queries, documents    ID, a tab and the text in each line; or JSON lines with _id (or id), title and text
    qrels                 QUERY 0 DOCUMENT GRADE
    results               QUERY Q0 DOCUMENT RANK SCORE NAME

A query has the first `depth` documents of the results, by score and, where scores are equal, by rank. Documents of the
grade `least` or above are relevant. A task has the fields ``query``, ``documents``, ``relevant`` (numbers from 1),
``order`` (by grade, then by rank) and ``prompts`` (one document each), which the rewards `reranked` and `list_metric`
read. A query whose documents have no relevant one is refused, or left out and counted with `drop`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.composed import ranking_prompts
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.datasets.rows import read_file
from posttrain.errors import UserError
from posttrain.errors.foreign import read_text
from posttrain.types import Task

LARGEST: Final = 256 << 20
"""Bytes of a file."""
Name = Annotated[str, Field(min_length=1)]
Result = tuple[float, int, str, str]
"""Minus the score, the rank, the document, and the place in the file."""


@frozen
class Trec(Tasks):
    """One task for each query."""

    queries: Name
    """File of the queries."""
    documents: Name
    """File of the documents."""
    qrels: Name
    """File of the grades."""
    results: Name
    """File of the results of a first search, such as BM25."""
    depth: Annotated[int, Field(ge=2, le=1000)] = 20
    """Most documents of a query."""
    least: Annotated[int, Field(ge=1, le=100)] = 1
    """Smallest grade of a relevant document."""
    drop: bool = False
    """Whether queries without a relevant document are left out, not refused."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order of the results."""
        return self._made[0]

    def describe(self) -> str:
        """Number, queries that were left out, and an example."""
        tasks, dropped = self._made
        without = f"; {dropped} queries without a relevant document are left out" if dropped else ""
        return describe(f"rankings of {self.results}, at most {self.depth} documents{without}", tasks)

    @cached_property
    def _made(self) -> tuple[Sequence[Task], int]:
        queries, documents, grades = _texts(self.queries), _texts(self.documents), self._grades()
        tasks, dropped = [], 0
        for query, found in self._results().items():
            best = [(document, place) for _, _, document, place in sorted(found)[: self.depth]]
            if query not in queries:
                raise UserError(f"{best[0][1]}: the query '{query}' is not in {self.queries}")
            if unknown := next((own for own in best if own[0] not in documents), None):
                raise UserError(f"{unknown[1]}: the document '{unknown[0]}' is not in {self.documents}")
            names = [name for name, _ in best]
            task = self._task(queries[query], [documents[name] for name in names], grades.get(query, {}), names)
            if task is None and not self.drop:
                raise UserError(
                    f"{best[0][1]}: none of the {len(best)} documents of the query '{query}' is relevant in "
                    f"{self.qrels}; a larger depth may have one, and drop: true leaves such queries out"
                )
            dropped += task is None
            tasks += [] if task is None else [task]
        if not tasks:
            raise UserError(f"no query of {self.results} has a relevant document among its first {self.depth}")
        return keyed(tasks), dropped

    def _task(self, query: str, documents: list[str], grades: Mapping[str, int], names: Sequence[str]) -> Task | None:
        """A query; None without a relevant document."""
        own = [grades.get(name, 0) for name in names]
        relevant = [number for number, grade in enumerate(own, 1) if grade >= self.least]
        if not relevant:
            return None
        order = sorted(range(1, len(own) + 1), key=lambda number: (-own[number - 1], number))
        prompts = ranking_prompts(query, documents)
        return Task(
            key="",
            prompt=prompts["prompt"],
            answer=">".join(map(str, order)),
            domain=f"{len(relevant)} relevant",
            fields={
                "query": query,
                "documents": documents,
                "relevant": relevant,
                "order": order,
                "prompts": prompts["prompts"],
            },
        )

    def _grades(self) -> Mapping[str, Mapping[str, int]]:
        """Grades of documents by query."""
        found: dict[str, dict[str, int]] = {}
        for place, (query, _, document, grade) in _lines(self.qrels, 4):
            found.setdefault(query, {})[document] = int(_number(grade, place))
        return found

    def _results(self) -> Mapping[str, list[Result]]:
        """Results by query, in the order of the file. Raises `UserError` for a document that is there twice."""
        found: dict[str, list[Result]] = {}
        seen: set[tuple[str, str]] = set()
        for place, (query, _, document, rank, score, _) in _lines(self.results, 6):
            if (query, document) in seen:
                raise UserError(f"{place}: the document '{document}' is a second time a result of '{query}'")
            seen.add((query, document))
            result = (-_number(score, place), int(_number(rank, place)), document, place)
            found.setdefault(query, []).append(result)
        return found


def _lines(file: str, count: int) -> Iterator[tuple[str, list[str]]]:
    """Place and columns of each line. Raises `UserError` for one with another number of columns."""
    for number, line in enumerate(read_text(Path(file), LARGEST).splitlines(), 1):
        columns = line.split()
        if columns and len(columns) != count:
            raise UserError(f"{file} line {number}: has {len(columns)} columns, {count} are needed: {line[:60]!r}")
        if columns:
            yield f"{file} line {number}", columns


def _texts(file: str) -> Mapping[str, str]:
    """Texts by name. Raises `UserError` for a line without one, or a name that is there twice."""
    found: dict[str, str] = {}
    for place, name, text in _named(file):
        if not name or not text.strip():
            raise UserError(f"{place}: needs a name and a text")
        if name in found:
            raise UserError(f"{place}: '{name}' is there twice")
        found[name] = text
    return found


def _named(file: str) -> Iterator[tuple[str, str, str]]:
    """Place, name and text of each line."""
    if file.endswith((".jsonl", ".json")):
        for row in read_file(Path(file)):
            values: Mapping[str, Any] = row.values
            name = values.get("_id", values.get("id"))
            text = " ".join(str(values[key]) for key in ("title", "text") if values.get(key))
            yield row.place, "" if name is None else str(name), text
        return
    for number, line in enumerate(read_text(Path(file), LARGEST).splitlines(), 1):
        if line.strip():
            name, _, text = line.partition("\t")
            yield f"{file} line {number}", name.strip(), text.strip()


def _number(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e300:
        raise UserError(f"{place}: {text[:30]!r} is no number")
    return value
