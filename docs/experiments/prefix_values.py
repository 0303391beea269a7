"""Does a contrast of states let a reward model value prefixes earlier, when what is good is revealed gradually?

Sequences have 24 tokens of 12 kinds. A good one has kinds 0 to 2 more often and a bad one kinds 3 to 5, the more often
the later: at token t with probability 0.7 t / 24, and else any kind. A state of width 16 is tanh of a linear map of
the counts so far. The map and a linear head learn pairs of a good and a bad sequence for 60 steps of 8 by the
loss of Bradley and Terry at the last token, with and without
`GoalContrast`. Reported is the AUROC of new prefixes after 25, 50, 75 and 100 % by the linear head, and by the cosine
with the mean last state of good sequences. Then 16 samples of a task vote, of which a half to three quarters are bad,
each with an answer of its own among three: accuracy of the vote, tokens saved and fallbacks by threshold.

    python docs/experiments/prefix_values.py --seeds 5
"""

import argparse
import json

import numpy as np
import torch
from torch.nn.functional import logsigmoid

from posttrain.components.diagnostics.prefixes import auroc, cosines, filtered
from posttrain.stages.reward_model import GoalContrast
from posttrain.statistics.intervals import mean
from posttrain.types import Score, Segment, Task, Trajectory

LENGTH, KINDS, WIDTH, BATCH, STEPS = 24, 12, 16, 8, 60


def sequences(rng: np.random.Generator, good: np.ndarray) -> torch.Tensor:
    """[N, 24] tokens."""
    told = rng.random((len(good), LENGTH)) < 0.7 * np.arange(1, LENGTH + 1) / LENGTH
    own = rng.integers(0, 3, told.shape) + np.where(good, 0, 3)[:, None]
    return torch.tensor(np.where(told, own, rng.integers(0, KINDS, told.shape)))


class Counting(torch.nn.Module):
    """States of all tokens, and a score of each."""

    def __init__(self) -> None:
        super().__init__()
        self.states = torch.nn.Linear(KINDS, WIDTH)
        self.head = torch.nn.Linear(WIDTH, 1)

    def forward(self, token_NL: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[N, L, D] states and [N, L] scores."""
        count_NLK = torch.nn.functional.one_hot(token_NL, KINDS).cumsum(1).float()
        state_NLD = self.states(count_NLK).tanh()
        return state_NLD, self.head(state_NLD)[..., 0]


@torch.enable_grad()
def trained(seed: int, contrast: GoalContrast | None) -> Counting:
    """The model after all steps."""
    torch.manual_seed(seed)
    model, rng = Counting(), np.random.default_rng(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        good_N = np.arange(2 * BATCH) < BATCH
        state_NLD, score_NL = model(sequences(rng, good_N))
        loss = -logsigmoid(score_NL[:BATCH, -1] - score_NL[BATCH:, -1]).mean()
        if contrast is not None:
            draws = torch.rand(BATCH, 4 * contrast.positions)
            loss = loss + contrast(list(state_NLD[:BATCH]), list(state_NLD[BATCH:]), draws)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


def rollout(good: bool, name: str) -> Trajectory:
    """An answer with its score."""
    segment = Segment(actor="policy", token_ids=np.zeros(LENGTH, np.int64), trained=True)
    score = Score(value=float(good), status="ok" if good else "wrong", answer=name)
    return Trajectory(task=Task(key="", prompt=""), segments=(segment,), stop_reason="stop", score=score)


@torch.no_grad()
def measured(seed: int, contrast: GoalContrast | None) -> dict[str, list[float]]:
    """AUROC by head and by cosine after four shares, and the votes by threshold of the cosine."""
    model, rng = trained(seed, contrast), np.random.default_rng(seed + 1000)
    goal_D = model(sequences(rng, np.ones(200, bool)))[0][:, -1].mean(0).numpy()
    tasks, by_head, by_goal = 60, [], []
    for _ in range(tasks):
        good_N = rng.random(16) < rng.uniform(0.25, 0.5)
        state_NLD, score_NL = model(sequences(rng, good_N))
        names = ["right" if good else f"wrong {rng.integers(2)}" for good in good_N]
        answers = [rollout(bool(good), name) for good, name in zip(good_N, names, strict=True)]
        by_head.append(list(zip(answers, score_NL.numpy(), strict=True)))
        by_goal.append([(t, cosines(s.numpy(), goal_D)) for t, s in zip(answers, state_NLD, strict=True)])
    shares = (0.25, 0.5, 0.75, 1.0)
    found = {"head": [auroc(by_head, s) or 0.0 for s in shares], "cosine": [auroc(by_goal, s) or 0.0 for s in shares]}
    for threshold in (None, -0.9, -0.5, 0.0, 0.5):
        row = filtered(by_goal, threshold)
        named = "vote of all" if threshold is None else f"vote, cosine above {threshold:g}"
        found[named] = [row["accuracy"], row["tokens_saved"], row["fallbacks"], row["answers_kept"]]
    return found


def shown(values: np.ndarray) -> str:
    """Mean and interval."""
    found = mean(values)
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table = []
    for name, contrast in (("pairs alone", None), ("pairs and contrast", GoalContrast())):
        results = [measured(seed, contrast) for seed in seeds]
        for row in results[0]:
            columns = np.array([found[row] for found in results]).T
            table.append([f"{name}: {row}", *(shown(column) for column in columns)])
    columns = ["", "25 %; accuracy of a vote", "50 %; tokens saved", "75 %; fallbacks", "100 %; answers kept"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
