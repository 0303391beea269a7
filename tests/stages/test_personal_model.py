"""The stage that learns what users like: its loss by hand, its schedule, the texts before a pair, its tasks."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.personal import Personal
from posttrain.components.tasks.tastes import Tastes
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.datasets.users import context_of
from posttrain.errors import UserError
from posttrain.methods.reward_models.vpl import vpl
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.latent import Latent, divergence, drawn
from posttrain.policies.loading import load_language_model
from posttrain.settings.arithmetic import arithmetic
from posttrain.signals import SCORES, STATE
from posttrain.stages.pairs import DRAWS
from posttrain.stages.personal_model import PersonalModelTraining
from posttrain.types import Task
from tests.builders import tokens

STAGE = PersonalModelTraining(reducer=Sequences(), weight=0.5, floor=0.2, cycle=8)


def test_the_weight_rises_in_cycles() -> None:
    """.2 + .8 (cos(pi (s - 1)) + 1) / 2 at s = 0, 1/2 and 3/4 of a cycle; then from the floor again."""
    assert STAGE.share(0) == pytest.approx(0.2) == STAGE.share(8)
    assert STAGE.share(4) == pytest.approx(0.6) == STAGE.share(12)
    assert STAGE.share(6) == pytest.approx(0.2 + 0.8 * (math.cos(math.pi / 4) + 1) / 2)
    assert replace(STAGE, floor=1.0).share(3) == 1.0


@pytest.mark.parametrize(("kl", "factor"), [("plain", 1.0), ("doubled", 2.0)])
def test_the_loss_of_a_pair(kl: str, factor: float) -> None:
    """At half of a cycle of 8 in 8 steps: -log sigmoid of the margin given z, and .5 * .6 of the KL."""
    latent = Latent(2, 1)
    score_NO = torch.tensor([[0.0, 0.5, -0.5], [1.0, 0.5, -0.5]], requires_grad=True)
    state_ND = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    made = replace(
        tokens([[0.0]] * 2, group_N=[0, 0], advantage=[[1.0], [-1.0]]),
        signals={SCORES: score_NO, STATE: state_ND},
        progress=0.5,
    )
    stage = replace(STAGE, kl=kl)  # type: ignore[arg-type]
    found = stage._loss(latent, 8, made, {DRAWS: np.array([[0.9]], np.float32)})
    z = torch.ones(1, 1)  # one number on the sphere is 1 or -1
    margin = latent.decode(state_ND[:1], z) - latent.decode(state_ND[1:], z)
    kl_1 = divergence(torch.tensor([0.5]), torch.tensor([-0.5]))
    expected = -logsigmoid(margin) + 0.5 * 0.6 * factor * kl_1
    assert found.loss_T.tolist() == pytest.approx([expected.item()] * 2)
    found.loss_T.mean().backward()
    assert score_NO.grad is not None and score_NO.grad[0, 1:].abs().min() > 0 and not score_NO.grad[1].any()


def test_what_is_refused() -> None:
    with pytest.raises(UserError, match="no stage reward_model"):
        vpl(arithmetic())
    with pytest.raises(UserError, match="task k: context is 'none'"):
        context_of(Task(key="k", prompt="q", fields={"context": "none"}))
    with pytest.raises(UserError, match=r"infers what users like, .* set models\.reward\.latent=8"):
        STAGE._latent({"reward": Plain()})  # type: ignore[dict-item]
    with pytest.raises(UserError, match="has a preference of a user"):
        Personal(tasks=Arithmetic(size=3)).load()
    with pytest.raises(UserError, match="user is None, where a name or a number is needed"):
        Personal(tasks=WorkedSolutions(size=3)).load()


class Plain:
    """A model without a latent."""


def test_pairs_of_the_user_stand_before_both_completions(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=128)
    policy = load_language_model("reward", Model(source=str(folder), head="reward", latent=3), {}, torch.device("cpu"))
    task = next(t for t in Personal(tasks=Tastes(size=30), pairs=1).load() if t.fields["context"])
    [(prompt, *shown)] = context_of(task)
    (end, *_) = policy.tokenizer.end_token_ids
    for side in STAGE._sides(policy, task, task.preferences[0]):
        text = policy.tokenizer.decode(side.token_ids)
        assert text == prompt + shown[0] + prompt + shown[1] + "Reply:" + side.completion
        assert (side.token_ids == end).sum() == 3 and side.num_trained < len(side.completion) + 2
    with pytest.raises(UserError, match=r"with the 8 pairs of its user, more than the context of 128"):
        many = replace(task, fields={**task.fields, "context": list(task.fields["context"]) * 8})
        STAGE._sides(policy, many, task.preferences[0])


@pytest.mark.slow
def test_users_of_opposite_tastes_are_distinguished() -> None:
    """Pairs of items on a line, liked by +x or -x: no single order is right for more than half of them."""
    draw = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    latent = Latent(1, 2)
    optimizer = torch.optim.Adam(latent.parameters(), 3e-3)

    def users(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        kind = torch.randint(0, 2, (count, 1, 1), generator=draw) * 2.0 - 1.0
        both = (kind * torch.randn(count, 5, 2, generator=draw)).sort(-1, descending=True).values * kind
        return both[..., :1], both[..., 1:]

    for _ in range(300):
        chosen, rejected = users(32)
        m, log_variance = latent.encode(chosen[:, :4], rejected[:, :4])
        z = drawn(m, log_variance, torch.randn(m.shape, generator=draw))
        loss = -logsigmoid(latent.decode(chosen[:, 4], z) - latent.decode(rejected[:, 4], z)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    chosen, rejected = users(500)
    right = []
    for shown in (0, 4):
        m, _ = latent.encode(chosen[:, :shown], rejected[:, :shown])
        right.append(float((latent.decode(chosen[:, 4], m) > latent.decode(rejected[:, 4], m)).float().mean()))
    assert right[0] < 0.65 and right[1] > 0.9


def test_tasks_show_pairs_of_their_user_only() -> None:
    source = Tastes(size=60)
    users = {task.fields["user"]: task.domain for task in source.load()}
    for task in Personal(tasks=source, pairs=4).load():
        shown = task.fields["context"]
        assert len(shown) <= 4 and all(row["prompt"] == "Reply:" for row in shown)
        liked = users[task.fields["user"]]
        assert all(row["chosen"].count(liked) > row["rejected"].count(liked) for row in shown)
    assert all(not task.fields["context"] for task in Personal(tasks=source, pairs=0).load())
    counts = {len(task.fields["context"]) for task in Personal(tasks=source, pairs=4, fewest=1).load()}
    assert counts == {1, 2, 3, 4}
