import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from posttrain.components.objectives import Objective
from posttrain.components.reducers.constant import Constant
from posttrain.components.rollouts.critiqued import Critiqued
from posttrain.components.tasks.refinements import Refinements
from posttrain.datasets.templates import Critiques
from posttrain.engines import Sampling
from posttrain.engines._continuous import ContinuousServer
from posttrain.methods.sft_rl.critique_grpo import ROWS, critique_grpo
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from posttrain.types import Completion
from tests.builders import numerical_gradient, tokens
from tests.serving.faulty import FaultyServer

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

NAN = math.nan


def test_without_a_warm_up_its_texts_are_english_and_its_constant_is_the_longest_answer() -> None:
    assert ROWS == (200,)
    stage = rl_of(critique_grpo(override(arithmetic(), ["rollout.sampling.max_tokens=300", "rollout.n=5"])))
    assert stage.rollout == Critiqued(n=5, texts=Critiques(), sampling=Sampling(max_tokens=300))
    assert stage.reducer == Constant(length=300.0)


def objective() -> Objective:
    return rl_of(critique_grpo()).objective


def test_weights_worked_out_by_hand() -> None:
    """Own tokens: p = 0.5 over p_old = 0.25, A = -0.5, and p = p_old, A = 2: dL/dlogp = -A p / p_old = 1 and -2.
    Refinement, A = 1.5: p = 0.1 gives 0.1 * 0.1 / 0.2^2 = 1/4, p = 0.9 gives 0.09, p = 0.01 gives 0.001 / 0.0121.
    """
    p = [[0.5, 0.3], [0.1, 0.9, 0.01]]
    logp = [[math.log(x) for x in row] for row in p]
    these = tokens(
        logp,
        old_logp=[[math.log(0.25), math.log(0.3)], [-1.0, -2.0, -3.0]],
        behavior_logp=[[math.log(0.25), math.log(0.3)], [NAN] * 3],
        advantage=[[-0.5, 2.0], [1.5] * 3],
    )
    objective()(these).loss_T.sum().backward()
    expected = [1.0, -2.0, -1.5 * 0.25, -1.5 * 0.09, -1.5 * 0.001 / 0.0121]
    assert these.logp_T.grad is not None
    assert these.logp_T.grad.tolist() == pytest.approx(expected)


def test_the_gradient_is_that_of_the_papers_objective() -> None:
    """- A p / p_old for own tokens, - A p / (p + 0.1) for those of a refinement, by central differences."""
    advantage = torch.tensor([0.7, -1.2, 0.9, -0.4, 0.9], dtype=torch.float64)
    old = torch.tensor([-1.1, -0.4, -9.0, -9.0, -9.0], dtype=torch.float64)
    shown = torch.tensor([False, False, True, True, True])

    def written(logp_T: Tensor) -> Tensor:
        p = logp_T.exp()
        return -(advantage * torch.where(shown, p / (p + 0.1), p / old.exp())).sum()

    at = [-1.3, -0.2, -0.1, -2.3, -6.0]
    rows = [at[:2], at[2:]]
    these = tokens(
        rows,
        old_logp=[old[:2].tolist(), old[2:].tolist()],
        behavior_logp=[old[:2].tolist(), [NAN] * 3],
        advantage=[advantage[:2].tolist(), advantage[2:].tolist()],
    )
    objective()(these).loss_T.sum().backward()
    expected = numerical_gradient(written, torch.tensor(at, dtype=torch.float64))
    torch.testing.assert_close(these.logp_T.grad, expected, rtol=1e-6, atol=1e-8)


def test_a_refinement_pulls_most_at_p_of_one_tenth() -> None:
    p = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    these = tokens([p.log().tolist()], behavior_logp=[[NAN] * 999], advantage=[[1.0] * 999])
    objective()(these).loss_T.sum().backward()
    assert these.logp_T.grad is not None
    pull = -these.logp_T.grad
    assert p[pull.argmax()].item() == pytest.approx(0.1)
    assert pull.max().item() == pytest.approx(0.25)
    assert pull[0] < 0.01 and pull[-1] < 0.1


def test_own_tokens_are_never_clipped() -> None:
    these = tokens([[0.0, 0.0]], old_logp=[[-5.0, -5.0]], advantage=[[1.0, -1.0]])
    objective()(these).loss_T.sum().backward()
    assert these.logp_T.grad is not None
    assert these.logp_T.grad.tolist() == pytest.approx([-math.exp(5), math.exp(5)])


def brief(small: Small, *changes: str) -> Recipe:
    sizes = ["lesson.max_steps=2", "lesson.batch=4", "rl.prompts=2", "rl.steps=2", "rollout.n=3"]
    short = ["lesson.tasks.of.terms=[2, 2]", "tasks.terms=[2, 2]"]  # fits the context of a small model
    return override(small(critique_grpo(), "lesson.tasks.of.size=40"), [*sizes, *short, *changes])


@pytest.mark.slow
def test_one_refinement_of_each_group_is_trained_on_in_place_of_the_first_rollout(small: Small, train: Train) -> None:
    _, store = train(brief(small))
    for step in (3, 4):
        rows = store.rollouts(step)
        for key in {row["task_key"] for row in rows}:
            own = [r for r in rows if r["task_key"] == key and r["sample"] < 3]
            refined = [r for r in rows if r["task_key"] == key and r["sample"] >= 3]
            assert [len(own), len(refined)] == [3, 3]
            assert [r["sample"] for r in own if r["dropped_reason"]] == [0]
            assert len([r for r in refined if r["dropped_reason"] is None]) == 1
            for row in refined:
                assert row["prompt"] == own[0]["prompt"], "learned under the bare question"
                assert row["info"] and '"simple_gt"' in row["info"]
    metrics = [m for m in store.metrics() if m["stage"] == "rl"]
    assert all(m["demonstrated"] == 1.0 for m in metrics)


def test_tokens_of_refinements_count_as_sampled(small: Small, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though they are learned as if nobody had sampled them, and those that did not fit are not learned at all."""
    asked: list[int] = []
    complete = ContinuousServer.complete

    async def counting(self: ContinuousServer, *args: Any) -> list[Completion]:
        completions = await complete(self, *args)
        asked.append(sum(len(completion.token_ids) for completion in completions))
        return completions

    monkeypatch.setattr(ContinuousServer, "complete", counting)
    _, store = train(brief(small, "evaluation.holdout=1", "stages.lesson.max_steps=1"))
    assert len(asked) == 3 + 2 * 2 * (1 + 3), "a held-out answer at each of three times; a group and its refinements"
    steps = [sum(asked[begin : begin + 8]) for begin in (2, 10)]
    rl = [entry for entry in store.metrics() if entry["stage"] == "rl"]
    assert [entry["sampled_tokens"] for entry in rl] == steps


@pytest.mark.slow
def test_critiques_by_an_endpoint(small: Small, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with FaultyServer().running() as server:
        judge = f"models.judge={{source: '{server.url}', endpoint: {{retries: 0}}}}"
        _, store = train(brief(small, judge, "models.judge.endpoint.model=tester", "rollout.critique=text"))
        infos = [row["info"] for row in store.rollouts(3) if row["info"]]
        assert infos and all('"text"' in info for info in infos)
        assert {asked["messages"][0]["content"][:3] for asked in server.asked} == {"Q: "}


def test_the_warm_up_has_the_prompts_of_the_rollout() -> None:
    recipe = critique_grpo()
    warm_up, rollout = recipe.stages["lesson"].tasks, rl_of(recipe).rollout
    assert isinstance(warm_up, Refinements)
    assert warm_up.texts == rollout.texts  # type: ignore[attr-defined]
    task = warm_up.load()[0]
    question, answer, critique, again = str(task.prompt).split("\n")
    assert question.startswith("Q: ") and answer.startswith("A: #### ") and again == "A:"
    assert critique in (f"ok {task.answer}", f"no {task.answer}")
    assert task.demonstrations[0].endswith(f"#### {task.answer}")
