"""GRPO-D: the KL weight is smallest after 30 % of the steps, and the format is rewarded too."""

from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.methods.policy_gradient.grpo_d import grpo_d
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.components.rewards.judging import judge
from tests.stages.conftest import with_reward

Train = Callable[[Recipe], tuple[Models, RunStore]]

SHORT = (
    "tasks.tasks.size=60",
    "evaluation.holdout=5",
    "threads=1",
    "tasks.tasks.terms=[2, 2]",
    "sft.max_steps=2",
    "rollout.n=4",
    "rollout.sampling.max_tokens=8",
    "rl.steps=10",
)
EQUAL = "def score(completion):\n    return 0.5\n"

# Ten steps: 0.07, down by 0.01 a step to 0.04 at the fourth, up by 0.06 / 7 a step towards 0.1, which the end has.
WEIGHTS = [0.07, 0.06, 0.05, 0.04, *(0.04 + 0.06 * k / 7 for k in range(1, 7))]


def of_the_rl_stage(store: RunStore, name: str) -> list[float]:
    return [entry[name] for entry in store.metrics() if entry["stage"] == "rl"]


def small_grpo_d(folder: Path, *changes: str) -> Recipe:
    return override(grpo_d(), [f"model={folder}", *SHORT, "rl.prompts=3", "rl.learner.optimizer.lr=1e-2", *changes])


@pytest.mark.slow
def test_the_term_of_each_step_is_its_weight_times_the_divergence(
    train: Train, tmp_path: Path, tiny_folder: Path
) -> None:
    """Equal rewards teach nothing, so the loss is the term alone. The reference here is the model before imitation,
    so that there is a divergence from the first step on.
    """
    recipe = small_grpo_d(tiny_folder, "rl.reducer.kind=tokens", f"models.reference.source={tiny_folder}")
    _, store = train(with_reward(recipe, tmp_path, EQUAL))
    assert of_the_rl_stage(store, "kl/coefficient") == pytest.approx(WEIGHTS)
    estimates = of_the_rl_stage(store, "kl/estimate")
    assert min(estimates) > 1e-3
    terms = [weight * estimate for weight, estimate in zip(WEIGHTS, estimates, strict=True)]
    assert of_the_rl_stage(store, "loss") == pytest.approx(terms, rel=1e-4)


def test_the_reward_is_of_the_answer_and_its_form() -> None:
    reward = rl_of(grpo_d()).reward
    task = grpo_d().tasks.load()[0]
    solution = task.demonstrations[0]
    assert solution.startswith("<think>") and solution.endswith("</answer>")
    assert judge(reward, solution, task).value == 2.0
    assert judge(reward, f"#### {task.answer}", task).value == 1.0
    wrong = judge(reward, "<think>no</think><answer>no</answer>", task)
    assert (wrong.value, wrong.status) == (1.0, "wrong")
    assert judge(reward, "no", task).value == 0.0
    verifier = grpo_d().evaluation.verifier
    assert verifier is not None and judge(verifier, solution, task).value == 1.0


def test_the_schedule_in_words_is_a_setting() -> None:
    """One line from 0.04 to 0.1."""
    lines = ("coefficient=0.04", "final=0.1", "until=1", "after=null")
    ramp = rl_of(override(grpo_d(), [f"rl.penalties.kl.{line}" for line in lines])).penalties["kl"]
    assert (ramp.coefficient, ramp.final, ramp.until, ramp.after) == (0.04, 0.1, 1.0, None)  # type: ignore[attr-defined]
