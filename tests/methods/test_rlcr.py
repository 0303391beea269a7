"""RLCR: confidence is learned as well as answers, and calibration is measured."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.components.rewards import Reward
from posttrain.components.rewards.calibrated import Calibrated
from posttrain.components.rewards.match import Match
from posttrain.methods.rewards.rlcr import ROWS, rlcr
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from posttrain.stages.rl.metrics import rollout_metrics
from posttrain.statistics.calibration import calibration_error
from posttrain.types import Group
from tests.components.rewards.judging import attempt, judge, score_all

Train = Callable[[Recipe], tuple[Models, RunStore]]

CHANCES = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
LEVELS = np.arange(11) / 10


def text(answer: str, confidence: float) -> str:
    return f"#### {answer}\n<confidence>{confidence:g}</confidence>"


def test_it_trains(tiny_folder: Path, train: Train) -> None:
    """A model that cannot write the form gets that from every reward, and nothing is learned from equal ones."""
    sizes = ("tasks.tasks.size=60", "evaluation.holdout=5", "sft.max_steps=2", "rl.steps=3", "prompts=3", "threads=1")
    short = ("tasks.tasks.terms=[2, 2]", "tasks.tag=p", "reward.tag=p", "rollout.n=4", "rollout.sampling.max_tokens=8")
    _, store = train(override(rlcr(), [f"model={tiny_folder}", *sizes, *short]))
    assert [entry["stage"] for entry in store.metrics()] == ["sft"] * 2 + ["rl"] * 3
    rows = store.rollouts(3)
    assert {row["reward"] for row in rows} == {-2.0}
    assert all("does not end with a number" in row["score_explanation"] for row in rows)
    assert ROWS == (169,)


def test_demonstrations_have_the_form_that_is_rewarded() -> None:
    reward = rl_of(rlcr()).reward
    for task in rlcr().tasks.load()[:50]:
        score = judge(reward, task.demonstrations[0], task)
        assert score.status == "ok"
        assert score.confidence is not None
        assert score.value == pytest.approx(1 - (1 - score.confidence) ** 2)


def test_correctness_is_that_of_the_setting() -> None:
    mine = override(arithmetic(), ["reward.extract=[hashes]"])
    correct = Match(extract=("hashes",))
    assert rl_of(rlcr(mine)).reward == Calibrated(correct=correct)
    assert rlcr(mine).evaluation.verifier == Calibrated(correct=correct, weight=0.0, malformed=None)
    scored = override(mine, ["evaluation.verifier=match"])
    assert rlcr(scored).evaluation == scored.evaluation
    assert rlcr(rlcr(mine)) == rlcr(mine)


def test_the_evaluation_counts_correct_answers_only() -> None:
    verifier = rlcr().evaluation.verifier
    assert verifier is not None
    assert judge(verifier, text("42", 0.1)).value == 1.0
    assert judge(verifier, "#### 42").value == 1.0
    assert judge(verifier, text("41", 0.0)).value == 0.0


def test_calibration_is_in_the_metrics_of_a_step() -> None:
    said = [("42", 0.9), ("42", 0.9), ("41", 0.9), ("41", 0.1)]
    rollouts = [attempt(text(*pair)) for pair in said] + [attempt("#### 42")]
    scores = score_all(Calibrated(correct=Match()), *rollouts)
    metrics = rollout_metrics([Group(trajectories=tuple(t.scored(s) for t, s in zip(rollouts, scores, strict=True)))])
    assert metrics["calibration/stated"] == pytest.approx(0.8)
    assert metrics["calibration/confidence"] == pytest.approx(0.7)
    assert metrics["calibration/brier"] == pytest.approx(-metrics["reward/brier"]) == pytest.approx(0.84 / 4)
    assert metrics["calibration/calibration_error"] == pytest.approx(0.75 * (0.9 - 2 / 3) + 0.25 * 0.1)
    assert metrics["calibration/auroc"] == pytest.approx(0.75)
    assert metrics["solved"] == pytest.approx(0.6)


def learned_confidences(reward: Reward, *, steps: int = 400, pulls: int = 64) -> np.ndarray:
    """[P, 11] policy over confidences after gradient steps on sampled answers that are right with `CHANCES`.

    Answers are not the policy's doing here: only its confidence is, as in a question that it cannot get better at.
    """
    rng = np.random.default_rng(0)
    rewarded = np.array([[judge(reward, text(answer, q)).value for q in LEVELS] for answer in ("41", "42")])
    logits = np.zeros((len(CHANCES), len(LEVELS)))
    for _ in range(steps):
        for p, chance in enumerate(CHANCES):
            policy = np.exp(logits[p]) / np.exp(logits[p]).sum()
            chosen = rng.choice(len(LEVELS), pulls, p=policy)
            rewards = rewarded[(rng.random(pulls) < chance).astype(int), chosen]
            advantages = rewards - rewards.mean()
            logits[p] += 2.0 * ((np.eye(len(LEVELS))[chosen] - policy) * advantages[:, None]).mean(0)
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def test_confidence_becomes_the_probability_of_being_correct() -> None:
    """Five questions that are answered right with given chances; the policy only chooses what it states."""
    rng = np.random.default_rng(1)

    def error(policy_PL: np.ndarray) -> float:
        stated = [rng.choice(LEVELS, 2000, p=row) for row in policy_PL]
        right = [rng.random(2000) < chance for chance in CHANCES]
        return calibration_error(np.concatenate(stated).tolist(), np.concatenate(right).tolist())

    rewarded = learned_confidences(Calibrated(correct=Match()))
    unrewarded = learned_confidences(Calibrated(correct=Match(), weight=0.0))
    assert np.abs(rewarded @ LEVELS - CHANCES).max() < 0.1
    assert error(rewarded) < 0.06
    assert error(unrewarded) > 0.15
