"""Pairs: what is trained, that a pair stays together however a step is cut, and that a restart changes nothing."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.preferences import compare
from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.errors import UserError
from posttrain.methods.preference.dpo import dpo
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.loading import load_policy
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.store import RunStore
from posttrain.signals import ADVANTAGE, LOGP, logp_of
from posttrain.stages import Models
from posttrain.stages.kto import KTO
from posttrain.stages.pairs import number_of, pair_examples, pairs_of
from posttrain.stages.personal_model import PersonalModelTraining
from posttrain.stages.preference import PreferenceTraining
from posttrain.stages.reward_model import RewardModelTraining
from posttrain.training.learner import Learner, Loss, evaluate_examples
from posttrain.training.packing import Example
from posttrain.training.settings import Learning
from posttrain.types import PerToken, Preference, Task, Tokens
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

SHORT = ("tasks.size=60", "tasks.terms=[2, 2]", "tasks.digits=[1, 1]", "evaluation.holdout=5", "batch=8")


def stage(recipe: Recipe) -> PreferenceTraining:
    (member,) = recipe.stages.values()
    assert isinstance(member, PreferenceTraining)
    return member


@pytest.fixture
def policy(tiny_folder: Path) -> Policy:
    return load_policy("policy", Model(source=str(tiny_folder), trained=True), {}, torch.device("cpu"))


def examples_of(policy: Policy, count: int = 8) -> list[Example]:
    """Pairs with reference log-probabilities that are those of the policy, moved a little."""
    tasks = WorkedSolutions(size=count, terms=(2, 4), digits=(1, 2)).load()
    bare = [e for i, task in enumerate(tasks) for e in pair_examples(policy, task, task.preferences[0], i)]
    found = evaluate_examples(policy, bare, frozenset({LOGP}), max_tokens=10**6)
    rng = np.random.default_rng(0)
    noise = [rng.normal(scale=0.5, size=e.num_trained).astype(np.float32) for e in bare]
    return [
        replace(e, columns={**e.columns, logp_of("reference"): signals[LOGP] + n})
        for e, signals, n in zip(bare, found, noise, strict=True)
    ]


def loss(per_token: Callable[[Tokens], PerToken] | None = None) -> Loss:
    return Loss(per_token=per_token or partial(compare, DPO(beta=0.5)), reducer=Sequences(), whole_groups=True)


def gradient(policy: Policy, examples: list[Example], micro_batch_tokens: int) -> tuple[float, torch.Tensor]:
    policy.zero_grad()
    learner = Learner(policy, Learning(micro_batch_tokens=micro_batch_tokens), seed=0, num_steps=1)
    total, _ = learner.accumulate(examples, loss(), 0.0)
    return total, torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None]).double()


def test_only_the_completions_are_trained(policy: Policy) -> None:
    chosen, rejected = pair_examples(policy, Task(key="k", prompt="2+2="), Preference(chosen="4", rejected="55"), 3)
    assert chosen.token_ids.tolist() == [*b"2+2=", *b"4", 257]
    assert chosen.positions.tolist() == [4, 5]
    assert rejected.positions.tolist() == [4, 5, 6]
    assert chosen.group == rejected.group == 3
    assert chosen.columns[ADVANTAGE].tolist() == [1.0] * 2
    assert rejected.columns[ADVANTAGE].tolist() == [-1.0] * 3


def test_the_loss_is_the_mean_over_pairs(policy: Policy) -> None:
    examples = examples_of(policy)
    total, _ = gradient(policy, examples, 10**6)
    found = evaluate_examples(policy, examples, frozenset({LOGP}), max_tokens=10**6)
    gains = [
        float((signals[LOGP].astype(np.float64) - e.columns[logp_of("reference")]).sum())
        for e, signals in zip(examples, found, strict=True)
    ]
    margins = 0.5 * (np.array(gains[::2]) - np.array(gains[1::2]))
    assert total == pytest.approx(np.log1p(np.exp(-margins)).mean(), abs=1e-5)


def test_how_a_step_is_cut_does_not_change_the_gradient(policy: Policy) -> None:
    examples = examples_of(policy)
    tokens = sum(len(e.token_ids) for e in examples)
    total, whole = gradient(policy, examples, tokens)
    assert whole.norm() > 1e-2
    for parts in (2, 4, 100):
        cut_total, cut = gradient(policy, examples, tokens // parts)
        assert cut_total == pytest.approx(total, abs=1e-6)
        assert (cut - whole).norm() / whole.norm() < 1e-5
    shuffled = [examples[i] for i in np.random.default_rng(1).permutation(len(examples))]
    assert (gradient(policy, shuffled, tokens // 4)[1] - whole).norm() / whole.norm() < 1e-5


@pytest.mark.parametrize("settings", [{"micro_batch_tokens": 1}, {"minibatches": 3}, {"minibatches": 2, "epochs": 2}])
def test_a_pair_stays_together(policy: Policy, settings: Mapping[str, int]) -> None:
    seen: list[list[int]] = []

    def watch(tokens: Tokens) -> PerToken:
        seen.append(tokens.group_N.tolist())
        return compare(DPO(), tokens)

    learner = Learner(policy, Learning(**settings), seed=0, num_steps=1)
    learner.step(examples_of(policy), loss(watch), progress=0.0)
    assert len(seen) > 1
    for groups in seen:
        assert all(groups.count(group) == 2 for group in groups)
    passes = settings.get("epochs", 1)
    assert sorted(g for groups in seen for g in groups) == sorted([*range(8)] * 2 * passes)


def test_references_made_before_are_those_made_on_the_way(policy: Policy) -> None:
    """The log-probabilities of a frozen model do not depend on the batch that they are computed in."""
    examples = examples_of(policy, 4)
    training = stage(dpo())._training
    together = training.with_signals(examples, {"policy": policy, "reference": policy})
    for i in range(0, 8, 2):
        alone = training.with_signals(examples[i : i + 2], {"policy": policy, "reference": policy})
        for one, other in zip(alone, together[i : i + 2], strict=True):
            assert one.columns[logp_of("reference")] == pytest.approx(other.columns[logp_of("reference")], abs=1e-5)


@pytest.mark.slow
def test_the_loss_begins_at_log_2_and_falls(small: Small, train: Train) -> None:
    recipe = small(dpo(), *SHORT, "tasks.rejected=unworked", "tasks.size=205", "epochs=2", "lr=1e-2", "loss.beta=0.5")
    models, store = train(recipe)
    metrics = store.metrics()
    assert metrics[0]["loss"] == pytest.approx(np.log(2), abs=1e-6)
    assert metrics[0]["pair_accuracy"] == 0.0
    assert metrics[0]["pair_margin"] == pytest.approx(0.0, abs=1e-6)
    assert np.mean([entry["pair_margin"] for entry in metrics[-5:]]) > 0.01
    tasks = WorkedSolutions(size=200).load()
    assert models["policy"].version == len(metrics) == recipe.stages["dpo"].total_steps(tasks)


def test_pairs_are_in_the_record_with_their_sides_and_log_probabilities(small: Small, train: Train) -> None:
    _, store = train(small(dpo(), *SHORT, "max_steps=1"))
    rows = store.rollouts(1)
    assert [(row["group_index"], row["sample"]) for row in rows] == [(i, s) for i in range(8) for s in (0, 1)]
    assert [json.loads(row["info"])["side"] for row in rows] == ["chosen", "rejected"] * 8
    for row in rows:
        assert row["trained_logp"] == pytest.approx(row["reference_logp"], abs=1e-5), "the reference is the start"
        assert sum(row["trained"]) == sum(logp is not None for logp in row["trained_logp"]) > 0
    chosen = [sum(logp for logp in row["trained_logp"] if logp is not None) for row in rows[::2]]
    assert store.metrics()[0]["chosen_logp"] == pytest.approx(np.mean(chosen), abs=1e-4)


def test_the_reference_stays_as_the_stage_found_it(small: Small, train: Train) -> None:
    recipe = small(dpo(), *SHORT)
    models, _ = train(recipe)
    start = load_policy("policy", recipe.models["policy"], {}, torch.device("cpu"))
    for name, parameter in start.named_parameters():
        assert torch.equal(models["reference"].get_parameter(name), parameter)
    assert any(not torch.equal(models["policy"].get_parameter(n), p) for n, p in start.named_parameters())


def test_comparing_with_the_step_before_needs_no_other_model(small: Small, train: Train) -> None:
    recipe = small(dpo(), *SHORT, "loss.reference=old", "max_steps=3")
    recipe = replace(recipe, models={"policy": recipe.models["policy"]})
    assert stage(recipe).roles == {"policy"}
    losses = [entry["loss"] for entry in train(recipe)[1].metrics()]
    assert losses == pytest.approx([np.log(2)] * 3, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 3])
def test_a_run_that_was_cut_off_goes_on_bit_for_bit(small: Small, train: Train, tmp_path: Path, every: int) -> None:
    recipe = small(dpo(), *SHORT, "learner.minibatches=2", f"checkpoints.every_steps={every}")
    models, store = train(recipe)
    resumed, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=4)
    assert again.metrics() == store.metrics()
    for name, parameter in models["policy"].named_parameters():
        assert torch.equal(resumed["policy"].get_parameter(name), parameter)


def test_data_without_preferences_is_refused(small: Small) -> None:
    recipe = override(small(dpo(), *SHORT), ["tasks.kind=arithmetic"])
    context = RunContext(recipe, torch.device("cpu"))
    with pytest.raises(UserError, match="has a preference to learn from; give columns named chosen and rejected"):
        context.check(context.first_models())


def test_a_completion_without_a_token_to_learn_is_refused(policy: Policy) -> None:
    task = Task(key="k", prompt="")
    with pytest.raises(UserError, match="task k: the rejected completion has no token that can be learned"):
        pair_examples(policy, task, Preference(chosen="abc", rejected=""), 0)


def test_a_pair_that_does_not_fit_is_refused(small: Small) -> None:
    recipe = small(dpo(), "tasks.terms=[9, 9]", "tasks.digits=[2, 2]")
    context = RunContext(recipe, torch.device("cpu"))
    with pytest.raises(UserError, match="together pass the model's context of 64"):
        context.check(context.first_models())


EQUAL = Preference(chosen="4", rejected="4")


def test_a_pair_of_equal_completions_is_left_out(policy: Policy) -> None:
    """In training and in what is measured; a prefix of the same text is another completion, since it has no end."""
    unequal, prefix = Preference(chosen="4", rejected="5"), replace(EQUAL, fields={"cut": True})
    both = replace(EQUAL, fields={"cut": "both"})
    tasks = [
        Task(key="a", prompt="2+2=", preferences=(EQUAL, unequal, both)),
        Task(key="b", prompt="1+3=", preferences=(prefix,)),
        Task(key="c", prompt="3+1=", preferences=(EQUAL,)),
    ]
    assert pairs_of(tasks) == [(tasks[0], unequal), (tasks[1], prefix)]
    assert [preference for _, preference in pairs_of([replace(tasks[2], fields={"cut": True})])] == [EQUAL]
    stages = (
        PreferenceTraining(loss=DPO(), reducer=Sequences(), batch=1),
        RewardModelTraining(reducer=Sequences(), role="policy", batch=1),
        PersonalModelTraining(reducer=Sequences(), batch=1),
    )
    for one in stages:
        assert one.notes(tasks) == ["left out 3 of 5 pairs, whose two completions are equal"]
        assert one.total_steps(tasks) == 2 * round(one.epochs) and one.notes(tasks[1:2]) == []
        with pytest.raises(UserError, match="the two completions of each pair of the 1 tasks are equal"):
            one.check({"policy": policy, "reward": policy}, tasks[2:])
    labels = KTO(reducer=Sequences(), batch=2)
    assert [rating.text for rating in labels.ratings(tasks)] == ["4", "5", "4", "4"]
    assert labels.notes(tasks) == stages[0].notes(tasks)
    for measured in (stages[0], labels):
        assert [len(measured.given(policy, task)) for task in tasks] == [2, 2, 0]


def test_the_number_of_pairs_that_are_left_out_is_in_the_record(small: Small, train: Train, tmp_path: Path) -> None:
    path = margins(tmp_path, *({"rejected": str(i + 1)} if i % 3 == 0 else {} for i in range(12)))
    changes = (f"tasks={path}", "evaluation=off", "batch=4")
    _, store = train(small(dpo(), *changes))
    messages = [event["message"] for event in store.events()]
    assert "stage dpo: left out 4 of 12 pairs, whose two completions are equal" in messages
    assert len(store.metrics()) == 2, "eight pairs in steps of four"


def test_a_frozen_policy_is_refused(small: Small, train: Train) -> None:
    with pytest.raises(UserError, match=r"stage dpo trains the role 'policy', but models\.policy\.trained is false"):
        train(override(small(dpo(), *SHORT), ["models.policy.trained=false"]))


def margins(tmp_path: Path, *rows: Mapping[str, object]) -> Path:
    path = tmp_path / "pairs.jsonl"
    lines = [{"prompt": f"{i}+1=", "chosen": str(i + 1), "rejected": "x", **row} for i, row in enumerate(rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_numbers_of_each_pair_come_from_its_row(policy: Policy, tmp_path: Path) -> None:
    tasks = Files(path=str(margins(tmp_path, {"margin": 2}, {"margin": -0.5}))).load()
    assert [number_of(task, task.preferences[0], "margin") for task in tasks] == [2.0, -0.5]
    delimited = tmp_path / "pairs.csv"
    delimited.write_text("prompt,chosen,rejected,margin\n1+1=,2,3,-1.5\n1+2=,3,4,nan\n")
    texts = Files(path=str(delimited)).load()
    assert number_of(texts[0], texts[0].preferences[0], "margin") == -1.5
    with pytest.raises(UserError, match="'margin' is 'nan'; give each row a column 'margin' with a finite number"):
        number_of(texts[1], texts[1].preferences[0], "margin")
    own = Preference(chosen="4", rejected="5", fields={"margin": 7.0})
    assert number_of(tasks[0], own, "margin") == 7.0
    training = PreferenceTraining(loss=DPO(growth=0.5), reducer=Sequences())
    training.check({"policy": policy}, tasks)
    for row, text in (({}, "there is none; did you mean 'margins'"), ({"margin": None}, "'margin' is None")):
        wrong = Files(path=str(margins(tmp_path, {"margins": 1, "margin": 1}, {"margins": 1, **row}))).load()
        with pytest.raises(UserError, match=f"the loss reads the number 'margin' of each pair, and {text}"):
            training.check({"policy": policy}, wrong)


@pytest.mark.slow
def test_each_pair_of_a_step_has_its_own_number(small: Small, train: Train, tmp_path: Path) -> None:
    """The recorded mean is that of the margins of the step's pairs, however the batch is cut."""
    path = margins(tmp_path, *({"margin": float(2**i)} for i in range(15)))
    changes = (f"tasks={path}", "evaluation.verifier=match", "evaluation.holdout=3", "batch=4", "loss.growth=0.5")
    _, store = train(small(dpo(), *changes, "learner.micro_batch_tokens=16"))
    seen = [round(row["given_margin"] * 4) for row in store.metrics() if "given_margin" in row]
    assert [number.bit_count() for number in seen] == [4, 4, 4] and sum(seen).bit_count() == 12


def test_a_rejected_prefix_has_no_end(policy: Policy) -> None:
    cut = Preference(chosen="4", rejected="55", fields={"cut": True})
    chosen, rejected = pair_examples(policy, Task(key="k", prompt="2+2="), cut, 3)
    assert chosen.token_ids.tolist() == [*b"2+2=", *b"4", 257]
    assert rejected.token_ids.tolist() == [*b"2+2=", *b"55"]
    both = pair_examples(policy, Task(key="k", prompt="2+2="), replace(cut, fields={"cut": "both"}), 3)
    assert [e.token_ids[-1] for e in both] == [ord("4"), ord("5")], "sibling steps are both prefixes"
    row = Task(key="k", prompt="2+2=", fields={"cut": True})
    assert pair_examples(policy, row, Preference(chosen="4", rejected="55"), 3)[1].token_ids[-1] == ord("5")
