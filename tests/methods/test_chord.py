"""CHORD: a stream of experts beside GRPO, with a weight of each and a normaliser of each."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.experts.stream import Stream
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.chord import ROWS, chord
from posttrain.methods.sft_rl.chord_phi import chord_phi
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"
SHORT = ("tasks.terms=[2, 2]", "experts.batch=5", "lr=1e-2")


def weights(models: Models) -> list[torch.Tensor]:
    return [parameter.detach() for parameter in models["policy"].parameters()]


def constant(recipe: Recipe, mu: float) -> Recipe:
    return override(recipe, [f"balance={{kind: fixed, mu: {mu}}}"])


@pytest.mark.slow
def test_each_part_is_the_mean_over_its_own_tokens(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = constant(with_reward(small(chord(arithmetic()), *SHORT), tmp_path, VARIED), 0.3)
    _, store = train(recipe)
    for step, entry in enumerate(store.metrics(), start=1):
        rows = [row for row in store.rollouts(step) if row["dropped_reason"] is None]
        experts = [row for row in rows if row["sampled_logp"] is None]
        own = [row for row in rows if row["sampled_logp"] is not None]
        assert len(experts) == 5 and len(own) % 4 == 0 and own
        nll = -np.mean([x for row in experts for x in row["trained_logp"] if x is not None])
        policy_loss = -np.mean([x for row in own for x in row["advantage"] if x is not None])
        assert entry["demonstrated/loss"] == pytest.approx(nll, rel=1e-5)
        assert entry["loss"] == pytest.approx(0.7 * policy_loss + 0.3 * nll, rel=1e-4)
        assert (entry["share/sampled"], entry["share/demonstrated"]) == pytest.approx((0.7, 0.3))
        assert all(row["reward"] is None or np.isnan(row["reward"]) for row in experts), "nobody scores them"
        groups = {row["group_index"] for row in store.rollouts(step) if row["sampled_logp"] is not None}
        assert not groups & {row["group_index"] for row in experts}
    assert entry["reward"] == pytest.approx(
        np.mean([row["reward"] for row in store.rollouts(step) if row["sampled_logp"] is not None])
    )


@pytest.mark.slow
def test_mu_0_is_grpo_to_the_bit(small: Small, train: Train, tmp_path: Path) -> None:
    mixed = constant(with_reward(small(chord(arithmetic()), *SHORT), tmp_path, VARIED), 0.0)
    plain = with_reward(small(grpo(arithmetic()), "tasks.terms=[2, 2]", "lr=1e-2"), tmp_path, VARIED)
    (ours, store), (theirs, other) = train(mixed), train(plain)
    assert all(torch.equal(a, b) for a, b in zip(weights(ours), weights(theirs), strict=True))
    assert [entry["loss"] for entry in store.metrics()] == [entry["loss"] for entry in other.metrics()]


@pytest.mark.slow
def test_mu_1_is_sft_to_the_bit_and_samples_nothing(small: Small, train: Train, tmp_path: Path) -> None:
    mixed = constant(with_reward(small(chord(arithmetic()), *SHORT), tmp_path, VARIED), 1.0)
    plain = small(
        sft(demonstrations()), "tasks.terms=[2, 2]", "batch=5", "max_steps=3", "lr=1e-2", "learner.schedule=constant"
    )
    learner = rl_of(mixed).learner
    plain = replace(plain, stages={"rl": replace(plain.stages["sft"], learner=learner)})  # type: ignore[type-var]
    (ours, store), (theirs, _) = train(mixed), train(plain)
    assert all(torch.equal(a, b) for a, b in zip(weights(ours), weights(theirs), strict=True))
    assert all(entry["sampled_tokens"] == 0 for entry in store.metrics())


def test_experts_of_a_file_of_their_own(small: Small, train: Train, tmp_path: Path) -> None:
    """Held-out tasks are left out of it, and a path alone is a stream of it."""
    rows = "".join(f'{{"prompt": "Q: {n}+1\\nA:", "completion": " #### {n + 1}"}}\n' for n in range(40))
    (tmp_path / "solutions.jsonl").write_text(rows)
    recipe = small(chord(arithmetic()), "tasks.terms=[2, 2]", f"experts={tmp_path / 'solutions.jsonl'}")
    stage: Any = recipe.stages["rl"]
    assert isinstance(stage.experts, Stream) and stage.experts.tasks is not None
    _, store = train(with_reward(recipe, tmp_path, VARIED))
    shown = [row["prompt"] for row in store.rollouts(1) if row["sampled_logp"] is None]
    assert len(shown) == 32 and all("+1\n" in prompt for prompt in shown)


def test_bad_experts_are_refused_before_anything_is_sampled(small: Small, tmp_path: Path) -> None:
    (tmp_path / "bare.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "c", "answer": "d"}\n')
    (tmp_path / "long.jsonl").write_text('{"prompt": "a", "completion": "' + "b" * 100 + '"}\n')
    for name, message in (("bare", "none of the 2 tasks has one"), ("long", "context of 64 tokens")):
        context = RunContext(small(chord(arithmetic()), f"experts={tmp_path / name}.jsonl"), torch.device("cpu"))
        with pytest.raises(UserError, match=message):
            context.check(context.first_models())


def test_experts_that_are_all_held_out_are_refused(small: Small, tmp_path: Path) -> None:
    tested, own = tmp_path / "tested.jsonl", tmp_path / "own.jsonl"
    tested.write_text('{"prompt": "a", "completion": "b", "answer": "b"}\n')
    own.write_text('{"prompt": "c", "answer": "d"}\n{"prompt": "e", "answer": "f"}\n')
    recipe = override(chord(), [f"experts={tested}", f"evaluation.tasks={tested}", f"tasks={own}"])
    context = RunContext(recipe, torch.device("cpu"))
    with pytest.raises(UserError, match=r"experts\.tasks: all of them are among the 1 held-out ones"):
        context.check(context.first_models())


def test_the_two_variants() -> None:
    stage, phi = rl_of(chord()), rl_of(chord_phi())
    assert [stage.balance.shares({}, seed=0, step=s, steps=1).demonstrated for s in (0, 999)] == [0.9, 0.05]  # type: ignore[union-attr]
    assert phi.balance.shares({}, seed=0, step=9, steps=10).demonstrated == 0.1  # type: ignore[union-attr]
    assert phi.objective.demonstrated.weight == "undecided"  # type: ignore[attr-defined]
    assert ROWS == (70,)


@pytest.mark.slow
def test_experts_take_no_pass_before_the_update(
    small: Small, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tokens are computed once, in the update; a loss that compares with the old policy needs another pass."""
    from posttrain.training import learner

    passes: list[int] = []
    evaluate = learner.evaluate_examples

    def counted(policy: Any, examples: Any, *args: Any, **settings: Any) -> Any:
        passes.append(len(examples))
        return evaluate(policy, examples, *args, **settings)

    monkeypatch.setattr(learner, "evaluate_examples", counted)
    recipe = with_reward(small(chord(arithmetic()), *SHORT), tmp_path, VARIED)
    train(recipe)
    assert passes == []
    train(override(recipe, ["objective.demonstrated=multiple_importance"]))
    assert passes == [5, 5, 5]
