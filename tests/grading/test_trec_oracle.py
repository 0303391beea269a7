"""Measures of rankings against trec_eval, which breaks ties by the names of documents; ours do not."""

from random import Random

import pytest

from posttrain.grading.ranked_lists import gain, ranked, reciprocal_rank

LISTS = 300


def test_reciprocal_rank_and_ndcg_equal_trec_eval_without_ties() -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = Random(73)
    judged, run, ours = {}, {}, {}
    for query in map(str, range(LISTS)):
        count = rng.randint(1, 25)
        relevant = [rng.random() < 0.3 for _ in range(count)]
        relevant[rng.randrange(count)] = True
        scores = [number / 8 for number in rng.sample(range(100), count)]
        judged[query] = {str(i): int(own) for i, own in enumerate(relevant)}
        run[query] = {str(i): score for i, score in enumerate(scores)}
        order = ranked(scores, relevant)
        ours[query] = (reciprocal_rank(order, count), gain(order, 10))
    found = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank", "ndcg_cut.10"}).evaluate(run)
    for query, (rank, ndcg) in ours.items():
        assert rank == pytest.approx(found[query]["recip_rank"], abs=1e-6)
        assert ndcg == pytest.approx(found[query]["ndcg_cut_10"], abs=1e-6)


@pytest.mark.parametrize(("name", "theirs"), [("a", 1 / 3), ("b1", 1 / 2), ("z", 1.0)])
def test_equal_scores_depend_on_names_there_and_not_here(name: str, theirs: float) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    run = {"q": {name: 5.0, "b": 5.0, "c": 5.0}}
    found = pytrec_eval.RelevanceEvaluator({"q": {name: 1, "b": 0, "c": 0}}, {"recip_rank"}).evaluate(run)
    assert found["q"]["recip_rank"] == pytest.approx(theirs)
    assert reciprocal_rank(ranked([5.0] * 3, [True, False, False]), 10) == 1 / 3
