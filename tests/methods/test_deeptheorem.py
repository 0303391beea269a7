"""DeepTheorem: gates, and the accuracy over all variants."""

from posttrain.components.rewards.proved import Proved
from posttrain.evaluation.greedy import summarize
from posttrain.methods.rewards.deeptheorem import deeptheorem
from posttrain.recipes.changes import rl_of
from posttrain.settings.arithmetic import arithmetic
from posttrain.types import Score, Task
from tests.builders import trajectory


def test_what_it_changes() -> None:
    assert rl_of(deeptheorem()).reward == Proved() == rl_of(deeptheorem(arithmetic())).reward


def test_a_theorem_counts_only_if_all_its_variants_are_right() -> None:
    """Of three theorems one has both right: a third, while four of six statements are right."""
    answered = []
    for theorem, values in (("a", (1.0, 1.0)), ("b", (1.0, 0.0)), ("c", (1.0, 0.0))):
        for n, value in enumerate(values):
            task = Task(key=f"{theorem}{n}", prompt="?", fields={"variant_of": theorem})
            answered.append([trajectory(of=task).scored(Score(value=value, status="ok" if value else "wrong"))])
    summary = summarize(answered, 1.0)
    assert summary["accuracy"] == 4 / 6 and summary["accuracy_of_all_variants"] == 1 / 3
    assert "accuracy_of_all_variants" not in summarize(answered[:1], 1.0)
