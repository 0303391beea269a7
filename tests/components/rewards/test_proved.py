"""Verdicts: gates in order, parsing, and the cheats."""

import pytest

from posttrain.components.rewards.proved import Proved
from posttrain.components.tasks.identities import Identities
from posttrain.datasets.holdout import holdout
from posttrain.errors import UserError
from posttrain.grading.expressions import evaluate
from posttrain.types import Task
from tests.components.rewards.judging import judge

TRUE = Task(key="t", prompt="Prove or disprove: 1 + 1 = 2.", fields={"truth": True})
FALSE = Task(key="f", prompt="Prove or disprove: 1 + 1 = 3.", answer="disproved")


def ended(verdict: str) -> str:
    return f"one and one is two, so we are done.</think> <answer> {verdict} </answer>"


@pytest.mark.parametrize(
    "box", [r"\boxed{proved}", r"\boxed{\text{Proved}.}", r"$\boxed{ PROVED! }$", r"\boxed{proved}"]
)
def test_right_forms(box: str) -> None:
    assert judge(Proved(), ended(box), TRUE).value == 1.0 and judge(Proved(), ended(box), FALSE).value == 0.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (ended(r"\boxed{not proved}"), 0.0),
        (ended(r"\boxed{proved or disproved}"), 0.0),
        (ended(r"\boxed{disproved} or \boxed{proved}"), 1.0),
        (ended(r"\boxed{proved} or \boxed{disproved}"), 0.0),
        (ended(r"\boxed{disproved}") + r" <answer> \boxed{proved} </answer>", 1.0),
        (r"so <answer> \boxed{proved} </answer> it is </think> and no more words", 0.0),
        (ended("proved"), 0.0),
        (r"it is \boxed{proved}", 0.0),
        (ended(r"\boxed{proved"), 0.0),
        ("", 0.0),
        (r"a reasoning process <answer> \boxed{proved} </answer>", 0.0),
        (r"User: is it? " + ended(r"\boxed{proved}"), 0.0),
        (str(TRUE.prompt) + ended(r"\boxed{proved}"), 0.0),
        ("x" * 900 + ended(r"\boxed{proved}"), 0.0),
        ("a b " * 4000 + ended(r"\boxed{proved}"), 0.0),
    ],
)
def test_cheats_and_gates(text: str, value: float) -> None:
    assert judge(Proved(), text, TRUE).value == value


def test_without_gates_echoes_are_rewarded_and_the_evaluation_reads_otherwise() -> None:
    echo = str(TRUE.prompt) + ended(r"\boxed{proved}")
    assert judge(Proved(gates=False), echo, TRUE).value == 1.0
    both = ended(r"\boxed{disproved} \boxed{proved}")
    assert judge(Proved(parser="evaluation"), both, FALSE).value == 0.0
    assert judge(Proved(parser="evaluation"), both, TRUE).value == 1.0
    assert judge(Proved(parser="evaluation"), "no box", TRUE).value == 0.0


def test_a_task_without_a_verdict_is_refused() -> None:
    bare = Task(key="b", prompt="Prove it.", answer="42")
    with pytest.raises(UserError, match="column 'truth'"):
        Proved().check([TRUE, bare])
    assert judge(Proved(), ended(r"\boxed{proved}"), bare).status == "error"


@pytest.mark.slow
def test_statements_are_true_or_false_by_exact_arithmetic_and_their_demonstrations_are_right() -> None:
    for level in range(1, 6):
        for task in Identities(size=1000, level=level).load():
            left, right = str(task.prompt).removeprefix("Q: ").split("?")[0].split("=")
            assert (evaluate(left) == evaluate(right)) == task.fields["truth"]
            assert judge(Proved(), task.demonstrations[0], task).value == 1.0


def test_always_proved_is_right_on_half_and_on_all_variants_of_none() -> None:
    tasks = Identities(size=400).load()
    values = [judge(Proved(), ended(r"\boxed{proved}"), task).value for task in tasks]
    assert sum(values) == 200
    pairs = {task.fields["variant_of"]: [] for task in tasks}  # type: ignore[var-annotated]
    for task, value in zip(tasks, values, strict=True):
        pairs[task.fields["variant_of"]].append(value)
    assert all(sorted(own) == [0.0, 1.0] for own in pairs.values())
    assert {task.fields["truth"] for task in Identities(size=50, variants="true_only").load()} == {True}


def test_variants_are_on_the_same_side_of_the_split() -> None:
    train, held_out = holdout(Identities(size=400).load(), 30, seed=0)
    assert len(held_out) == 60 and len(train) == 340
    assert not {t.fields["variant_of"] for t in train} & {t.fields["variant_of"] for t in held_out}
