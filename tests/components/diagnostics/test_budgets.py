"""Success by budget, with scripted players."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.budgets import Budgets, guessed
from posttrain.components.environments.budgeted import Budgeted
from posttrain.components.rollouts.independent import Independent
from posttrain.components.rollouts.turns import Turns
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.types import Task


def nothing() -> Any:
    """No model is loaded."""


def test_a_model_has_a_run_for_each_budget_and_repeats(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    subject = Subject(
        name="tiny",
        load=lambda: load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")),
        serve=lambda policy: Native().serve(policy, 0),
    )
    rollout = Turns(environment=Budgeted(), sampling=Sampling(max_tokens=4))
    diagnostic = Budgets(rollout=rollout, tasks=Arithmetic(size=4), largest=3, first=2)
    finding = diagnostic.examine(subject)
    row = finding.values["found"]["tiny"]
    assert row["success"] == [0.0] * 3 and row["interval"][0] == 0.0 and row["slope"] == 0.0
    for steps, means in enumerate(row["episodes"], start=1):
        assert means["success"] == means["calls"] == 0.0, "what is sampled at random is no call"
        assert means["turns"] == steps and 0 < means["tokens"] <= 4 * steps
    assert diagnostic.examine(subject).values == finding.values and len(finding.lines) == 3


async def success(steps: int, feedback: str, fixes: bool) -> bool:
    """One who is one off at first, and repeats that, or fixes it if the feedback has the sign."""
    environment = Budgeted(steps=steps, proposals=min(steps, 2), feedback=feedback)  # type: ignore[arg-type]
    async with environment.open(Task(key="a", prompt="", answer="42"), lambda: 0.5) as instance:
        seen, proposed = instance.begin(), 41
        while True:
            proposed += fixes and "Too small" in seen.text
            outcome = await instance.step(f"<solution>{proposed}</solution>")
            seen = outcome.observation
            if outcome.done:
                verdict = instance.verdict()
                return verdict is not None and verdict.solved


def test_one_who_fixes_after_feedback_gains_everything_by_it_and_nothing_by_turns() -> None:
    alone = [asyncio.run(success(steps, "none", fixes=True)) for steps in range(1, 6)]
    assert alone == [False] * 5
    assert asyncio.run(success(5, "sign", fixes=True)) and not asyncio.run(success(5, "sign", fixes=False))
    assert not asyncio.run(success(1, "sign", fixes=True)), "with one step there is nothing after the feedback"


def test_guessers() -> None:
    assert guessed(4, 1, again=True) == 0.25
    assert guessed(4, 2, again=True) == pytest.approx(0.4375)
    assert guessed(4, 2, again=False) == 0.5 and guessed(1, 2, again=False) == 1.0


def test_a_guesser_has_a_slope_although_it_learns_nothing() -> None:
    """.25 and four times .4375: slope .0375 per step."""
    diagnostic = Budgets(rollout=Turns(environment=Budgeted()), tasks=Arithmetic(size=2))
    guesser = Subject(name="guess4again", load=nothing, serve=nothing)  # type: ignore[arg-type]
    found = diagnostic.examine(guesser).values["found"]["guess4again"]
    assert found["success"] == pytest.approx([0.25] + [0.4375] * 4)
    assert found["slope"] == pytest.approx(0.0375) and found["feedback_gain"] == 0.0


def test_a_rollout_without_a_budget_is_refused() -> None:
    diagnostic = Budgets(rollout=Independent(), tasks=Arithmetic(size=2))
    with pytest.raises(UserError, match="has no environment with a budget"):
        diagnostic.examine(Subject(name="guess4", load=nothing, serve=nothing))  # type: ignore[arg-type]
