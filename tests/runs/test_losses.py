"""Evaluation by loss: numbers by hand, nothing sampled, and what is reported before and after."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.errors import UserError
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.preference.dpo import dpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.losses import given_texts, held_out_losses, sums_of
from posttrain.runs.preview import preview
from posttrain.runs.store import RunStore
from posttrain.stages.preference import PreferenceTraining
from posttrain.stages.sft import SFT
from posttrain.types import Preference, Task

Rows = list[dict[str, object]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)


@pytest.fixture(scope="module")
def policy(folder: Path) -> Policy:
    return load_policy("policy", Model(source=str(folder), trained=True), {}, torch.device("cpu"))


@pytest.fixture
def make(folder: Path, tmp_path: Path) -> Callable[..., Recipe]:
    """A recipe on rows of the user's own."""

    def made(recipe: Recipe, rows: Rows, *changes: str) -> Recipe:
        file = tmp_path / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        small = ["threads=1", "evaluation.holdout=4", "lr=1e-2", *(["batch=4"] if "rl" not in recipe.stages else [])]
        return override(recipe, [f"model={folder}", f"tasks={file}", *small, *changes])

    return made


CHATS: Rows = [
    {"messages": [{"role": "user", "content": f"hi {i}"}, {"role": "assistant", "content": "yo"}]} for i in range(12)
]
PAIRS: Rows = [{"prompt": f"say {i}: ", "chosen": "yes", "rejected": "no"} for i in range(12)]


class Fixed:
    """A policy whose log-probabilities are given, text by text."""

    def __init__(self, policy: Policy, logp: dict[str, list[float]]) -> None:
        self.policy, self.logp = policy, logp

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def found(_: object, given: list[object], __: object) -> list[np.ndarray]:
            return [np.array(self.logp[t.completion], np.float32) for t in given]  # type: ignore[attr-defined]

        monkeypatch.setattr("posttrain.runs.losses._log_probabilities", found)


def sft_stage() -> SFT:
    (stage,) = sft().stages.values()
    assert isinstance(stage, SFT)
    return stage


def pair_stage() -> PreferenceTraining:
    (stage,) = dpo().stages.values()
    assert isinstance(stage, PreferenceTraining)
    return stage


def test_the_loss_of_demonstrations_by_hand(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tokens in one text and one in another: the mean of four tokens, with two clusters."""
    tasks = [Task(key="a", prompt="1", demonstrations=("xy",)), Task(key="b", prompt="2", demonstrations=("",))]
    Fixed(policy, {"xy": [-1.0, -2.0, -3.0], "": [-2.0]}).patch(monkeypatch)
    found = held_out_losses(policy, [sft_stage()], tasks, {})
    assert found.summary["demonstrations"] == 2
    assert found.summary["held_out_loss"] == pytest.approx(2.0)
    assert found.summary["perplexity"] == pytest.approx(math.exp(2.0))
    # Both texts have a mean of exactly 2, so their sums of residuals are 0.
    assert found.summary["held_out_loss_interval"] == pytest.approx([2.0, 2.0])
    Fixed(policy, {"xy": [-1.0, -1.0, -1.0], "": [-5.0]}).patch(monkeypatch)
    after = held_out_losses(policy, [sft_stage()], tasks, {("a", 0): -6.0, ("b", 0): -2.0})
    assert after.summary["held_out_loss"] == pytest.approx(2.0)
    # Residual sums are -3 and +3, so the variance is (9 + 9) / 4^2 * 2/1; t(1) is 12.706.
    reach = 12.706204736 * math.sqrt(18 / 16 * 2)
    assert after.summary["held_out_loss_interval"] == pytest.approx([2 - reach, 2 + reach])
    assert after.summary["loss_change"] == pytest.approx((-3 + 3) / 4)


def test_pairs_by_hand(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums decide: -2 against -3, and -4 against -1. Since the start the margins went from 2 to 1 and from -5 to -3."""
    tasks = [
        Task(key="a", prompt="1", preferences=(Preference(chosen="w", rejected="l"),)),
        Task(key="b", prompt="2", preferences=(Preference(chosen="W", rejected="L"),)),
    ]
    Fixed(policy, {"w": [-1.0, -1.0], "l": [-3.0], "W": [-2.0, -2.0], "L": [-1.0]}).patch(monkeypatch)
    first = {("a", 0): -1.0, ("a", 1): -3.0, ("b", 0): -6.0, ("b", 1): -1.0}
    found = held_out_losses(policy, [pair_stage()], tasks, first).summary
    assert (found["pairs"], found["pair_accuracy"], found["implicit_accuracy"]) == (2, 0.5, 0.5)
    assert found["pair_margin"] == pytest.approx((1 - 3) / 2)
    assert found["chosen_loss"] == pytest.approx(6 / 4)
    assert found["pair_accuracy_interval"] == pytest.approx([0.0945, 0.9055], abs=1e-3), "Wilson's, of 1 in 2"


def test_texts_are_numbered_within_their_task(policy: Policy) -> None:
    task = Task(key="a", prompt="1", demonstrations=("x", "y"), preferences=(Preference(chosen="w", rejected="l"),))
    given = given_texts(policy, [sft_stage(), pair_stage(), pair_stage()], [task])
    assert [(t.sample, t.completion) for t in given] == [(0, "x"), (1, "y"), (2, "w"), (3, "l")]


def test_chats_without_answers_are_measured_without_sampling(
    make: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sampled(*_: object) -> None:
        raise AssertionError("something was sampled")

    monkeypatch.setattr("posttrain.evaluation.greedy.answer", sampled)
    run, summary = start(make(sft(), CHATS, "epochs=4", "evaluation.every=5"), tmp_path / "runs", LiveView(lines=True))
    with RunStore.open(run, reading=True) as store:
        entries, rows = store.evaluations(), store.given_rows(0, "before")
        notes = [event["message"] for event in store.events()]
    assert [entry["demonstrations"] for entry in entries] == [4] * len(entries)
    assert "loss_change" not in entries[0]
    assert entries[-1]["loss_change"] == pytest.approx(entries[-1]["held_out_loss"] - entries[0]["held_out_loss"])
    assert entries[-1]["loss_change_interval"][1] < 0
    tokens = [x for row in rows for x in row["trained_logp"] if x is not None]
    assert entries[0]["held_out_loss"] == pytest.approx(-np.mean(tokens), abs=1e-5)
    assert sums_of(rows).keys() == {(row["task_key"], 0) for row in rows}
    assert any("measured by the likelihood of their demonstrations; they are not answered" in note for note in notes)
    assert summary["perplexity_after"] < summary["perplexity_before"]
    assert "Held-out loss of 4 demonstrations" in summary["summary_line"]
    assert not any("accuracy" in warning for warning in summary["warnings"])
    page = (run / "report.html").read_text()
    assert "Held-out loss of 4 demonstrations" in page and "<figcaption>" in page


@pytest.mark.slow
def test_pairs_without_answers_are_measured_by_their_order(make: Callable[..., Recipe], tmp_path: Path) -> None:
    _, summary = start(make(dpo(), PAIRS, "epochs=4", "loss.beta=1"), tmp_path / "runs", LiveView(lines=True))
    assert summary["implicit_accuracy"] == 1.0
    assert summary["pair_margin_after"] > summary["pair_margin_before"]
    assert "in 100.0 % [51.0, 100.0] it has become likelier in comparison" in summary["summary_line"]


def test_evaluation_can_be_switched_off(make: Callable[..., Recipe], tmp_path: Path) -> None:
    recipe = make(sft(), CHATS, "evaluation=off", "max_steps=1")
    assert recipe.evaluation == Evaluation(by="none")
    for word in ("none", "false", "null"):
        assert make(sft(), CHATS, f"evaluation={word}", "max_steps=1") == recipe
    every = make(sft(), CHATS, "evaluation=off", "evaluation.by=loss", "evaluation.every=5").evaluation
    assert every == Evaluation(by="loss", every=5), "what follows changes it again"
    assert preview(recipe)["evaluation"] == ["nothing is held out or measured, as evaluation.by=none sets"]
    run, summary = start(recipe, tmp_path / "runs", LiveView(lines=True))
    with RunStore.open(run, reading=True) as store:
        assert store.evaluations() == []
        assert store.metrics()[0]["epoch"] == pytest.approx(4 / 12), "all twelve rows are trained on"
    assert summary["warnings"] == [] and "Held-out accuracy was not measured." in summary["summary_line"]
    with pytest.raises(UserError, match="by is none, so the test set in tasks would not be used"):
        make(sft(), CHATS, "evaluation.by=none", "evaluation.tasks=arithmetic")


def test_what_cannot_be_measured_is_refused(make: Callable[..., Recipe]) -> None:
    rows: Rows = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(12)]
    with pytest.raises(UserError, match=r"evaluation.by is loss, but no held-out task has demonstrations or pairs"):
        preview(override(make(grpo(), rows), ["evaluation.by=loss"]))


def test_rows_with_answers_and_demonstrations_are_measured_both_ways(make: Callable[..., Recipe]) -> None:
    rows: Rows = [{"prompt": f"{i}+1=", "completion": str(i + 1), "answer": str(i + 1)} for i in range(12)]
    found = preview(make(sft(), rows))["evaluation"]
    answers = "4 tasks, scored by match, greedy"
    assert found == [f"{answers}; the likelihood of the demonstrations of 4 tasks, without sampling"]
    assert preview(make(sft(), rows, "evaluation.by=answers"))["evaluation"] == [answers]
