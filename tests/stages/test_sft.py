"""Imitation: what is trained, in which order, and what does not fit."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posttrain.components.penalties.adaptive_kl import AdaptiveKL
from posttrain.components.penalties.kl import KL
from posttrain.errors import UserError
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.signals import LOGP
from posttrain.stages import Models
from posttrain.stages.sft import SFT, demonstration, example_from
from posttrain.training.learner import evaluate_examples
from posttrain.types import Message, Task, Utterance

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def stage(**changes: object) -> SFT:
    return replace(sft_of(sft()), **changes)  # type: ignore[arg-type]


@pytest.fixture
def policy(tiny_folder: Path):  # type: ignore[no-untyped-def]
    return load_policy("policy", Model(source=str(tiny_folder), trained=True), {}, torch.device("cpu"))


def test_only_the_completion_and_its_end_are_trained(policy) -> None:  # type: ignore[no-untyped-def]
    made = demonstration(policy, Task(key="k", prompt="2+2="), "4")
    assert made.token_ids.tolist() == [*b"2+2=", *b"4", 257]
    assert made.trained_positions.tolist() == [4, 5]


def test_after_messages_the_chat_template_decides(policy) -> None:  # type: ignore[no-untyped-def]
    made = demonstration(policy, Task(key="k", prompt=(Message(role="user", content="hi"),)), "yo")
    assert policy.tokenizer.decode(made.token_ids, special=True) == "<|user|>hi<|end|><|assistant|>yo<|end|>"
    trained = made.token_ids[made.trained_positions]
    assert policy.tokenizer.decode(trained, special=True) == "yo<|end|>"


CALLS = (
    Utterance(actor="policy", text=" <<2+2>>", ended=False),
    Utterance(actor="environment", text="4"),
    Utterance(actor="policy", text="!"),
)


def test_of_an_episode_what_the_policy_writes_is_trained(policy) -> None:  # type: ignore[no-untyped-def]
    made = demonstration(policy, Task(key="k", prompt="2+2="), CALLS)
    assert made.token_ids.tolist() == [*b"2+2= <<2+2>>4!", 257]
    assert bytes(made.token_ids[made.trained_positions][:-1].tolist()) == b" <<2+2>>!"
    assert [(s.actor, s.turn, s.trained) for s in made.segments] == [
        ("prompt", 0, False),
        ("demonstration", 0, True),
        ("environment", 1, False),
        ("demonstration", 1, True),
    ]


def test_an_episode_in_a_chat_is_the_conversation_by_the_template(policy) -> None:  # type: ignore[no-untyped-def]
    """The first observation is a part of the prompt."""
    said = [("environment", "go"), ("policy", "a"), ("environment", "no"), ("policy", "b")]
    episode = tuple(Utterance(actor=actor, text=text) for actor, text in said)  # type: ignore[arg-type]
    made = demonstration(policy, Task(key="k", prompt=(Message(role="user", content="hi"),)), episode)
    assert policy.tokenizer.decode(made.token_ids, special=True) == (
        "<|user|>hi\n\ngo<|end|><|assistant|>a<|end|><|user|>no<|end|><|assistant|>b<|end|>"
    )
    assert policy.tokenizer.decode(made.token_ids[made.trained_positions], special=True) == "a<|end|>b<|end|>"


def test_episodes_are_demonstrations_too() -> None:
    task = Task(key="k", prompt="2+2=", demonstrations=("4",), episodes=(CALLS,))
    assert stage().pairs([task]) == [(task, "4"), (task, CALLS)]


def test_an_episode_that_does_not_fit_is_refused(policy) -> None:  # type: ignore[no-untyped-def]
    long = (*CALLS[:1], Utterance(actor="environment", text="4" * 60), CALLS[2])
    with pytest.raises(UserError, match=r"prompt \(4 tokens\) and demonstration \(70\)"):
        demonstration(policy, Task(key="k", prompt="2+2="), long)


def test_a_bare_text_is_trained_from_its_second_token(policy) -> None:  # type: ignore[no-untyped-def]
    made = demonstration(policy, Task(key="k", prompt=""), "abc")
    assert made.token_ids.tolist() == [*b"abc", 257]
    assert made.trained_positions.tolist() == [1, 2, 3]


def test_a_demonstration_that_does_not_fit_is_refused_with_the_numbers(policy) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=r"task k: prompt \(60 tokens\) and demonstration \(11\) together pass"):
        demonstration(policy, Task(key="k", prompt="x" * 60), "y" * 10)


def test_every_demonstration_comes_once_an_epoch_in_a_new_order() -> None:
    member = stage(batch=4)
    places = [i for step in range(5) for i in member.order(10, step, seed=3)]
    assert sorted(places[:10]) == sorted(places[10:]) == list(range(10))
    assert places[:10] != places[10:]
    assert places == [i for step in range(5) for i in member.order(10, step, seed=3)]
    assert places != [i for step in range(5) for i in member.order(10, step, seed=4)]


@pytest.mark.parametrize(
    ("count", "batch", "epochs", "max_steps", "steps"),
    [
        (100, 10, 1.0, None, 10),
        (100, 10, 2.5, None, 25),
        (100, 32, 1.0, None, 3),
        (3, 32, 1.0, None, 1),
        (100, 10, 9.0, 7, 7),
    ],
)
def test_steps_follow_from_epochs(count: int, batch: int, epochs: float, max_steps: int | None, steps: int) -> None:
    tasks = [Task(key=str(i), prompt="a", demonstrations=("b",)) for i in range(count)]
    assert stage(batch=batch, epochs=epochs, max_steps=max_steps).total_steps(tasks) == steps


def test_tasks_without_demonstrations_are_refused() -> None:
    with pytest.raises(UserError, match="none of the 1 tasks has a demonstration to imitate; give a column named"):
        stage().pairs([Task(key="k", prompt="a")])


@pytest.mark.slow
def test_the_loss_falls_and_is_recorded(small: Small, train: Train) -> None:
    recipe = small(sft(), "tasks.size=400", "batch=16", "epochs=2", "lr=3e-3")
    models, store = train(recipe)
    losses = [entry["loss"] for entry in store.metrics()]
    assert len(losses) == models["policy"].version == 49
    assert np.mean(losses[-5:]) < np.mean(losses[:3]) - 1.5
    assert store.metrics()[-1]["epoch"] == pytest.approx(2.0, abs=0.05)


def test_a_batch_larger_than_the_data_repeats_it(small: Small, train: Train) -> None:
    recipe = small(sft(), "tasks.size=12", "max_steps=2")
    _, store = train(with_stage(recipe, replace(sft_of(recipe), batch=20, epochs=10.0)))
    assert [entry["epoch"] for entry in store.metrics()] == pytest.approx([20 / 7, 40 / 7])


def test_another_role_can_be_the_one_that_imitates(small: Small, train: Train) -> None:
    """The teacher is a copy of the policy, which stays as it is."""
    recipe = small(sft(), "tasks.terms=[2, 2]", "role=teacher", "max_steps=2", "models.policy.trained=false",
                   "models.teacher.source=role:policy", "models.teacher.trained=true")  # fmt: skip
    models, store = train(recipe)
    assert (models["teacher"].version, models["policy"].version) == (2, 0)
    assert len(store.metrics()) == 2
    policy = dict(models["policy"].named_parameters())
    assert any(not torch.equal(p, policy[n]) for n, p in models["teacher"].named_parameters())


def test_a_role_that_is_not_trained_cannot_imitate(small: Small, train: Train) -> None:
    recipe = small(sft(), "tasks.terms=[2, 2]", "role=teacher", "models.teacher.source=role:policy")
    with pytest.raises(UserError, match=r"trains the role 'teacher', but models.teacher.trained is false"):
        train(recipe)


@pytest.mark.slow
def test_penalties_are_in_the_loss(small: Small, train: Train) -> None:
    """Another role's log-probabilities are there for them; those of a copy of the policy are the policy's at first."""
    changes = ("tasks.terms=[2, 2]", "sft.max_steps=3", "sft.batch=8", "lr=1e-2", "models.reference.source=role:policy")
    plain = train(small(sft(), *changes))[1].metrics()
    recipe = small(sft(), *changes, "sft.regularizers.near.kind=kl", "sft.regularizers.open.kind=entropy",
                   "sft.regularizers.open.coefficient=1")  # fmt: skip
    assert sft_of(recipe).roles == {"policy", "reference"}
    penalized = train(recipe)[1].metrics()
    assert penalized[0]["near/estimate"] == pytest.approx(0.0, abs=1e-6)
    assert penalized[2]["near/estimate"] > 1e-4
    entropy = np.log(256 + 5)
    assert penalized[0]["loss"] == pytest.approx(plain[0]["loss"] - entropy, abs=0.1), "a new model is undecided"


def test_penalties_that_need_rewards_are_refused() -> None:
    with pytest.raises(ValidationError, match="'near' acts in the reward, and an sft stage has none"):
        stage(regularizers={"near": KL(where="reward")})
    with pytest.raises(ValidationError, match="'near' acts in the reward"):
        stage(regularizers={"near": AdaptiveKL()})
    assert stage(regularizers={"near": KL(role="teacher")}).roles == {"policy", "teacher"}


def test_demonstrations_are_in_the_record_with_their_mask_and_log_probabilities(
    small: Small, train: Train, policy: Policy
) -> None:
    """The first step's are those of the model that the run began with."""
    _, store = train(small(sft(), "tasks.terms=[2, 2]", "sft.batch=4", "sft.max_steps=2"))
    assert store.rollout_steps() == [1, 2]
    rows = store.rollouts(1)
    assert [row["group_index"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        made = demonstration(policy, Task(key="k", prompt=row["prompt"]), row["completion"])
        assert row["token_ids"] == made.token_ids.tolist()
        assert np.flatnonzero(row["trained"]).tolist() == made.trained_positions.tolist()
        [found] = evaluate_examples(policy, [example_from(made)], frozenset({LOGP}), max_tokens=10**6)
        shown = [logp for logp, trained in zip(row["trained_logp"], row["trained"], strict=True) if trained]
        assert shown == pytest.approx(found[LOGP].tolist(), abs=1e-5)
        assert [logp for logp, trained in zip(row["trained_logp"], row["trained"], strict=True) if not trained] == [
            None
        ] * len(row["prompt"])
    losses = [-logp for row in rows for logp in row["trained_logp"] if logp is not None]
    assert store.metrics()[0]["loss"] == pytest.approx(np.mean(losses), abs=1e-5)


def test_tokens_a_second_count_all_that_was_computed(small: Small, train: Train) -> None:
    """Prompts too, each epoch again; not only what is trained."""
    _, store = train(small(sft(), "tasks.terms=[2, 2]", "sft.batch=4", "sft.max_steps=1", "learner.epochs=2"))
    (row,), entry = [t for t in store.timing() if "seconds_learn" in t], store.metrics()[0]
    tokens = sum(len(one["token_ids"]) for one in store.rollouts(1))
    assert entry["trained_tokens"] < tokens
    assert row["computed_tokens"] == 2 * tokens
    assert row["tokens_per_second"] == pytest.approx(2 * tokens / row["seconds_total"])
