"""Files of TREC become tasks of rankings."""

from pathlib import Path

import pytest

from posttrain.components.rewards.list_metric import ListMetric
from posttrain.components.rewards.reranked import Reranked
from posttrain.components.tasks.trec import Trec
from posttrain.errors import UserError

FILES = {
    "queries": "q1\tmetals?\nq2\tgases?\n",
    "documents": '{"_id": "a", "title": "Salt", "text": "white"}\n{"id": "b", "text": "zinc"}\n{"id": 3, "text": "x"}',
    "qrels": "q1 0 b 1\nq1 0 3 2\nq2 0 a 0\n",
    "results": "q1 Q0 a 1 3.5 bm25\nq1 Q0 b 2 1 bm25\nq1 Q0 3 3 1 bm25\n",
}
SECOND = "q2 Q0 a 1 2 bm25\n"


def trec(folder: Path, *, depth: int = 20, drop: bool = False, **changed: str) -> Trec:
    names = {}
    for name, text in {**FILES, **changed}.items():
        ending = "jsonl" if text.startswith("{") else "txt"
        names[name] = str(folder / f"{name}.{ending}")
        Path(names[name]).write_text(text)
    return Trec(**names, depth=depth, drop=drop)


def test_a_query_with_its_documents(tmp_path: Path) -> None:
    [task] = trec(tmp_path).load()
    assert task.prompt == "metals?\n1 Salt white\n2 zinc\n3 x\n:"
    assert (task.fields["relevant"], task.fields["order"]) == ([2, 3], [3, 2, 1])
    assert task.fields["prompts"][2] == "metals?\nx\nscore 0 to 10:"
    Reranked().check([task])
    ListMetric().check([task])


def test_depth_is_by_score_and_then_by_rank(tmp_path: Path) -> None:
    results = "q1 Q0 a 9 1 x\nq1 Q0 b 2 1 x\nq1 Q0 3 1 7e0 x\n"
    [task] = trec(tmp_path, depth=2, results=results).load()
    assert task.fields["documents"] == ["x", "zinc"]


def test_queries_without_a_relevant_document(tmp_path: Path) -> None:
    results = FILES["results"] + SECOND
    with pytest.raises(UserError, match=r"results.txt line 4: none of the 1 documents of the query 'q2'"):
        trec(tmp_path, results=results).load()
    dropped = trec(tmp_path, results=results, drop=True)
    assert len(dropped.load()) == 1 and "1 queries without" in dropped.describe()
    with pytest.raises(UserError, match="no query of"):
        trec(tmp_path, results=SECOND, drop=True).load()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"results": "q1 Q0 a 1 3.5\n"}, "results.txt line 1: has 5 columns, 6 are needed"),
        ({"results": "q1 Q0 z 1 3.5 x\n"}, "line 1: the document 'z' is not in"),
        ({"results": "q9 Q0 a 1 3.5 x\n"}, "line 1: the query 'q9' is not in"),
        ({"results": "q1 Q0 a 1 nan x\n"}, "'nan' is no number"),
        ({"results": FILES["results"] + "q1 Q0 a 4 0 x\n"}, "line 4: the document 'a' is a second time"),
        ({"qrels": "q1 0 b yes\n"}, "qrels.txt line 1: 'yes' is no number"),
        ({"queries": "q1 metals?\n"}, "queries.txt line 1: needs a name and a text"),
        ({"queries": "q1\ta\nq1\tb\n"}, "queries.txt line 2: 'q1' is there twice"),
    ],
)
def test_what_is_refused(changed: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        trec(tmp_path, **changed).load()
    assert message in str(caught.value)
