"""Prefix-RFT: hybrids are members of ordinary groups; their prefix is learned at its most uncertain tokens."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.methods.sft_rl.prefix_rft import ROWS, prefix_rft
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.training.learner import Learner
from posttrain.training.packing import Example
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"
SHORT = ("tasks.terms=[2, 2]",)


def spans(row: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Places of the trained tokens that nobody sampled, and of those that the policy wrote."""
    trained = [i for i, is_trained in enumerate(row["trained"]) if is_trained]
    sampled = row["sampled_logp"] or [None] * len(row["trained"])
    given = [i for i in trained if sampled[i] is None or np.isnan(sampled[i])]
    return given, [i for i in trained if i not in given]


def test_hybrids_share_group_and_baseline(small: Small, train: Train, tmp_path: Path) -> None:
    _, store = train(with_reward(small(prefix_rft(), *SHORT), tmp_path, VARIED))
    lengths = []
    for step, entry in enumerate(store.metrics(), start=1):
        assert entry["demonstrated"] == 1.0
        rows = [row for row in store.rollouts(step) if row["dropped_reason"] is None]
        for key in {row["task_key"] for row in rows}:
            group = [row for row in rows if row["task_key"] == key]
            assert [bool(spans(row)[0]) for row in group] == [False, False, False, True]
            mean = np.mean([row["reward"] for row in group])
            for row in group:
                given, own = spans(row)
                assert [row["advantage"][i] for i in (*given, *own)] == pytest.approx(
                    [row["reward"] - mean] * len(given + own)
                )
                assert [row["ratio"][i] for i in given] == pytest.approx([1.0] * len(given), abs=1e-4)
                assert own and own[0] == (given[-1] + 1 if given else own[0]), (
                    "the policy goes on where the prefix ends"
                )
            lengths.append(len(spans(group[-1])[0]))
    assert min(lengths) >= 1
    assert ROWS == (37,)


def test_reported_rewards_are_of_rollouts_without_help(small: Small, train: Train, tmp_path: Path) -> None:
    _, store = train(with_reward(small(prefix_rft(), *SHORT), tmp_path, VARIED))
    for step, entry in enumerate(store.metrics(), start=1):
        unaided = [row["reward"] for row in store.rollouts(step) if not spans(row)[0]]
        assert len(unaided) == 9
        assert entry["reward"] == pytest.approx(np.mean(unaided))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_how_much_of_the_prefix_is_learned(
    small: Small, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Seen in the loss that the learner gets: tokens of a prefix beyond the share have a loss of exactly 0."""
    seen: list[tuple[int, int]] = []
    step = Learner.step

    def watched(self: Learner, examples: Sequence[Example], loss: Any, **own: Any) -> Any:
        def per_token(tokens: Any) -> Any:
            result = loss.per_token(tokens)
            for i in range(len(tokens.length_N)):
                given_T = tokens.demonstrated_T & (tokens.sequence_T == i)
                if given_T.any() and tokens.advantage_T[given_T].abs().max() > 0:
                    seen.append((int(given_T.sum()), int((result.loss_T[given_T] != 0).sum())))
            return result

        return step(self, examples, replace(loss, per_token=per_token), **own)

    monkeypatch.setattr(Learner, "step", watched)
    recipe = small(prefix_rft(), *SHORT, "penalties={}", f"objective.demonstrated.share={share}", "prompts=6")
    train(with_reward(recipe, tmp_path, VARIED))
    assert len(seen) > 5
    for given, learned in seen:
        assert learned == given - int(np.floor(round(given * (1 - share), 6)))


def test_less_is_given_as_training_goes_on() -> None:
    rollout: Any = rl_of(prefix_rft()).rollout
    assert [round(rollout.at(progress).low, 2) for progress in (0.0, 0.5, 1.0)] == [0.95, 0.5, 0.05]
