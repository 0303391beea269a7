"""Passages to rank: relevance by attribute, the noisy teacher, and the orders that are kept."""

from posttrain.components.rewards.reranked import Reranked
from posttrain.components.tasks.passages import Passages
from posttrain.grading.ranked_lists import is_order, ndcg
from tests.components.rewards.judging import judge


def test_relevance_is_the_letter() -> None:
    for task in Passages(size=200, passages=9).load():
        lines = str(task.prompt).splitlines()
        named = [int(line.split()[0]) for line in lines[1:-1] if line.split()[1][0] == lines[0][0]]
        assert task.fields["relevant"] == named and 1 <= len(named) <= 3
        assert is_order(task.fields["order"], 9) and ndcg(task.fields["order"], set(named), 10) > 0.4


def test_a_teacher_without_noise_has_the_most_and_a_noisy_one_errs() -> None:
    for task in Passages(size=50, noise=0.0).load():
        assert abs(judge(Reranked(), task.demonstrations[0], task).value - 1.3) < 1e-9
    noisy = Passages(size=200, noise=0.5).load()
    values = [judge(Reranked(), task.demonstrations[0], task) for task in noisy]
    assert 0.3 < sum(score.status == "ok" for score in values) / 200 < 0.9
    assert min(score.parts["ndcg"].value for score in values) > 0.4
    kept = Passages(size=200, noise=0.9, keep=0.99).load()  # nothing else is kept
    assert all(ndcg(task.fields["order"], set(task.fields["relevant"]), 10) == 1.0 for task in kept)
