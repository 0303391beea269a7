"""The split into training and held-out tasks, the verifier of held-out answers, and their limits."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.components.rewards.format import Format
from posttrain.components.rewards.match import Match
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.files import Files
from posttrain.datasets.holdout import distinct
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.changes import rl_of, sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.runs.problems import Problems
from posttrain.types import Task

Rows = Callable[..., Files]


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    """Tasks that ask for the given numbers, in a file."""

    def write(numbers: Iterable[int], *, chat: bool = False) -> Files:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        asked = [f"What comes after {number}?" for number in numbers]
        given = [{"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text} for text in asked]
        path.write_text("".join(json.dumps({**row, "answer": "?"}) + "\n" for row in given))
        return Files(path=str(path))

    return write


def recipe_of(tasks: Tasks, evaluation: Evaluation | None = None, **own: Tasks) -> Recipe:
    """A recipe of both stages; `own` are the tasks that a stage brings itself."""
    stages = {"sft": sft_of(sft()), "rl": rl_of(grpo())}
    stages = {name: replace(stage, tasks=own.get(name)) for name, stage in stages.items()}
    return replace(grpo(), tasks=tasks, stages=stages, evaluation=evaluation or Evaluation(holdout=5))


def numbers(tasks: Iterable[Task]) -> list[int]:
    texts = [t.prompt if isinstance(t.prompt, str) else t.prompt[-1]["content"] for t in tasks]
    return [int(text.removeprefix("What comes after ").removesuffix("?")) for text in texts]


def of(problems: Problems, stage: str) -> list[int]:
    return numbers(problems.of(problems.recipe.stages[stage]))


@pytest.mark.parametrize("seed", range(5))
def test_held_out_tasks_are_never_trained_on(rows: Rows, seed: int) -> None:
    problems = Problems(replace(recipe_of(rows(range(20))), seed=seed))
    assert len(problems.held_out) == 5
    assert sorted(numbers(problems.held_out) + of(problems, "rl")) == list(range(20))
    assert of(problems, "sft") == of(problems, "rl")
    assert problems.notes == []


def test_generated_tasks_are_split_by_what_they_ask() -> None:
    """Small sizes draw the same problem several times."""
    problems = Problems(recipe_of(Arithmetic(size=90, digits=(1, 1), terms=(2, 2), operators="+")))
    asked = {task.prompt for task in problems.held_out}
    assert len(asked) == 5
    assert asked.isdisjoint(task.prompt for task in problems.of(problems.recipe.stages["rl"]))


def test_the_seed_chooses_and_the_same_seed_chooses_alike(rows: Rows) -> None:
    tasks = rows(range(40))
    chosen = [numbers(Problems(replace(recipe_of(tasks), seed=seed)).held_out) for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_too_few_tasks_are_halved(rows: Rows) -> None:
    problems = Problems(recipe_of(rows(range(7))))
    assert len(problems.held_out) == 3
    assert len(problems.train) == 4
    assert problems.notes == []


def test_one_prompt_is_one_held_out_task(rows: Rows) -> None:
    problems = Problems(recipe_of(rows([*range(20), *range(20), *range(20)])))
    assert len(problems.held_out) == len(set(numbers(problems.held_out))) == 5
    assert len(problems.train) == 45
    assert problems.notes == ["merged 10 of 15 held-out rows whose prompt is another row's"]


def test_merged_tasks_keep_what_all_rows_hold() -> None:
    rows = [
        Task(key=str(i), prompt="Why?", answer=a, demonstrations=(d,)) for i, (a, d) in enumerate(["xa", "xb", "yb"])
    ]
    kept, merged, conflicts = distinct([*rows, Task(key="other", prompt="How?")])
    assert [task.key for task in kept] == ["0", "other"]
    assert (kept[0].answer, kept[0].demonstrations, merged, conflicts) == ("x", ("a", "b"), 2, 1)


def test_a_test_set_is_merged_before_it_is_cut(rows: Rows) -> None:
    problems = Problems(recipe_of(rows(range(8)), Evaluation(tasks=rows([3, 3, 3, 1, 2]), holdout=2)))
    assert numbers(problems.held_out) == [3, 1]


def test_a_stages_own_tasks_lose_what_is_held_out(rows: Rows) -> None:
    problems = Problems(recipe_of(rows(range(20)), sft=rows(range(30)), rl=rows(range(10, 40), chat=True)))
    held_out = set(numbers(problems.held_out))
    assert of(problems, "sft") == [n for n in range(30) if n not in held_out]
    assert of(problems, "rl") == [n for n in range(10, 40) if n not in held_out], "a chat asks the same as its text"
    removed = {"sft": len(held_out), "rl": len(held_out & set(range(10, 40)))}
    assert problems.notes == [
        f"stage {name}: left out {count} tasks that are in the held-out set" for name, count in removed.items() if count
    ]


def test_a_test_set_of_its_own_is_taken_whole_and_left_out_of_training(rows: Rows) -> None:
    evaluation = Evaluation(tasks=rows([3, 1, 100, 101]), holdout=50)
    problems = Problems(recipe_of(rows(range(8)), evaluation, rl=rows(range(100, 105))))
    assert numbers(problems.held_out) == [3, 1, 100, 101]
    assert of(problems, "sft") == [0, 2, 4, 5, 6, 7]
    assert of(problems, "rl") == [102, 103, 104]
    assert problems.notes == [
        "stage sft: left out 2 tasks that are in the held-out set",
        "stage rl: left out 2 tasks that are in the held-out set",
    ]


def test_a_large_test_set_is_cut_to_the_number_in_the_recipe(rows: Rows) -> None:
    problems = Problems(recipe_of(rows(range(8)), Evaluation(tasks=rows(range(50, 90)), holdout=3)))
    assert numbers(problems.held_out) == [50, 51, 52]


def test_tasks_that_all_ask_the_same_cannot_be_split(rows: Rows) -> None:
    with pytest.raises(
        UserError, match=r"the 4 tasks of kind 'files' all have the same prompt, so none can be held out"
    ):
        Problems(recipe_of(rows([1, 1, 1, 1])))


def test_a_source_without_tasks_is_refused(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arithmetic, "load", lambda self: ())
    with pytest.raises(UserError, match="the tasks of kind 'arithmetic' are empty"):
        Problems(recipe_of(Arithmetic()))
    with pytest.raises(UserError, match="the tasks of kind 'arithmetic' are empty"):
        Problems(recipe_of(rows(range(9)), rl=Arithmetic()))


# Who judges


def test_the_evaluations_own_verifier_scores(rows: Rows) -> None:
    problems = Problems(recipe_of(rows(range(9)), Evaluation(holdout=2, verifier=Match(tolerance=0.5))))
    assert problems.verifier == Match(tolerance=0.5)
    assert problems.rewards == [rl_of(grpo()).reward, Match(tolerance=0.5)]


def test_without_one_the_last_training_reward_scores(rows: Rows) -> None:
    recipe = recipe_of(rows(range(9)))
    rl = rl_of(recipe)
    two = replace(recipe, stages={"first": replace(rl, reward=Format()), "second": rl})
    problems = Problems(two)
    assert problems.verifier is rl.reward
    assert problems.rewards == [Format(), rl.reward]


def test_imitation_alone_needs_a_verifier(rows: Rows) -> None:
    recipe = replace(sft(), tasks=rows(range(9)), evaluation=Evaluation(holdout=2))
    with pytest.raises(UserError, match=r"evaluation\.verifier is needed: no stage of this recipe has a reward"):
        Problems(recipe).verifier  # noqa: B018
    scored = Problems(replace(recipe, evaluation=Evaluation(holdout=2, verifier=Match())))
    assert scored.rewards == [Match()]


# Within which limits


def test_limits_are_the_evaluations_own_or_those_of_the_last_stage_that_samples(rows: Rows) -> None:
    tasks, own = rows(range(9)), Sampling(max_tokens=7, stop=("\n",))
    rl = rl_of(grpo())
    assert Problems(recipe_of(tasks, Evaluation(holdout=2, sampling=own))).sampling == own
    longer = replace(rl, rollout=replace(rl.rollout, sampling=Sampling(max_tokens=99)))
    recipe = with_stage(recipe_of(tasks), longer)
    assert Problems(recipe).sampling == Sampling(max_tokens=99)
    after = replace(recipe, stages={"late": longer, "last": rl, "sft": sft_of(sft())})
    assert Problems(after).sampling == rl.rollout.sampling
    imitation = replace(sft(), tasks=tasks, evaluation=Evaluation(holdout=2, verifier=Match()))
    assert Problems(imitation).sampling == Sampling()
