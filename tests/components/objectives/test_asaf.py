"""The discriminator of two policies: its loss and gradient by hand, and that a table becomes the demonstrator."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch

from posttrain.components.objectives.asaf import ASAF
from posttrain.types import Tokens
from tests.builders import random_tokens

NAN = float("nan")


def tokens(logp: list[float], old: list[float], sequence: list[int], demonstrated: list[bool]) -> Tokens:
    made = random_tokens(needs=frozenset(), dtype=torch.float64)
    flat = torch.tensor(logp, dtype=torch.float64, requires_grad=True)
    count = max(sequence) + 1
    old_T = torch.tensor(old, dtype=torch.float64)
    return replace(
        made,
        logp_T=flat,
        old_logp_T=old_T,
        behavior_logp_T=torch.where(torch.tensor(demonstrated), torch.tensor(NAN), old_T),
        advantage_T=torch.zeros_like(old_T),
        sequence_T=torch.tensor(sequence),
        length_N=torch.bincount(torch.tensor(sequence), minlength=count),
    )


def test_at_the_start_of_a_step_it_cannot_distinguish() -> None:
    given = tokens([-1.0, -2.0, -1.0], [-1.0, -2.0, -1.0], [0, 0, 1], [True, True, False])
    found = ASAF()(given)
    assert found.loss_T.tolist() == pytest.approx([log(2) / 2, log(2) / 2, log(2)])  # each completion has log 2
    assert found.metrics["discriminator"].tolist() == [0.5] * 3
    found.loss_T.sum().backward()  # type: ignore[no-untyped-call]
    assert given.logp_T.grad is not None
    assert given.logp_T.grad.tolist() == pytest.approx([-0.5, -0.5, 0.5])


def test_the_gradient_is_a_sigmoid() -> None:
    # logits 0.5 - 0.2 = 0.3 of the demonstration and 1 of the rollout
    given = tokens([-0.5, -2.2, -1.0], [-1.0, -2.0, -2.0], [0, 0, 1], [True, True, False])
    ASAF()(given).loss_T.sum().backward()  # type: ignore[no-untyped-call]
    sigmoid = [1 / (1 + np.exp(-x)) for x in (0.3, 1.0)]
    assert given.logp_T.grad is not None
    assert given.logp_T.grad.tolist() == pytest.approx([sigmoid[0] - 1, sigmoid[0] - 1, sigmoid[1]])
    single = tokens([-0.5, -2.2, -1.0], [-1.0, -2.0, -2.0], [0, 0, 1], [True, True, False])
    ASAF(per="token")(single).loss_T.sum().backward()  # type: ignore[no-untyped-call]
    assert single.logp_T.grad is not None
    wanted = [1 / (1 + np.exp(-0.5)) - 1, 1 / (1 + np.exp(0.2)) - 1, sigmoid[1]]
    assert single.logp_T.grad.tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("per", ["sequence", "token"])
def test_the_gradient_equals_finite_differences(per: str) -> None:
    old, sequence, demonstrated = [-1.0, -2.0, -0.5, -1.5], [0, 0, 1, 1], [True, True, False, False]
    at = np.array([-0.7, -2.5, -0.9, -1.1])
    objective = ASAF(per=per)  # type: ignore[arg-type]

    def loss(logp: np.ndarray) -> float:
        return float(objective(tokens(logp.tolist(), old, sequence, demonstrated)).loss_T.detach().sum())

    given = tokens(at.tolist(), old, sequence, demonstrated)
    objective(given).loss_T.sum().backward()  # type: ignore[no-untyped-call]
    by_steps = [(loss(at + h) - loss(at - h)) / 2e-6 for h in np.eye(4) * 1e-6]
    assert given.logp_T.grad is not None and given.logp_T.grad.tolist() == pytest.approx(by_steps, abs=1e-8)


@pytest.mark.slow
def test_a_table_becomes_the_demonstrator() -> None:
    """Exact expectations over a row: each round trains the discriminator, then the policy is its own past."""
    expert = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    distances = []
    for _ in range(20):
        old = logits.detach().softmax(0)
        optimizer = torch.optim.LBFGS([logits], max_iter=50, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

        def loss(old: torch.Tensor = old, optimizer: torch.optim.Optimizer = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            logp = logits.log_softmax(0)
            given = tokens([0.0] * 6, [0.0] * 6, [*range(6)], [True] * 3 + [False] * 3)
            given = replace(given, logp_T=logp.repeat(2), old_logp_T=old.log().repeat(2))
            total = (torch.cat([expert, old]) * ASAF()(given).loss_T).sum()
            total.backward()  # type: ignore[no-untyped-call]
            return total

        optimizer.step(loss)  # type: ignore[arg-type]
        distances.append(float((logits.detach().softmax(0) - expert).abs().sum()) / 2)
    assert distances[-1] < 1e-4 and distances[0] < 0.367  # a uniform row is .367 away
