"""RLAD with tables: a writer of hints and a solver that is wrong without them, trained in alternating phases.

    python docs/experiments/hint_writers.py --seeds 5
    python docs/experiments/hint_writers.py --models runs/rlad-1/checkpoints/LAST/models

A problem has one of four words and a number; an answer is one of four procedures, applied to the number. The solver's
logits are a part for the word, which prefers a wrong procedure, and a part for the hint, which prefers its own. The
writer's hints are random at first. 20 phases of 5 steps with 8 problems; 4 hints and 8 answers with each, or one hint
and 8 answers; 16 answers for leaks. The rollout and the losses are those of the package or its formulas: RPO for the
writer, group-normalized rewards and a KL of 0.3 for the solver. Shares are sums over the tables.

With --models the models of a run's checkpoint are asked instead, with the 80 problems that it held out and with the
others: 4 hints for each, 4 answers with each hint, and 16 without. The reference is what both were before.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from posttrain.components.rollouts.abstracted import Abstracted, Bare, HintGiven, Hints
from posttrain.components.tasks.procedures import Procedures, right_procedure
from posttrain.datasets.holdout import holdout
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.statistics.intervals import mean
from posttrain.types import Completion, Group, Score, Segment, Task, Trajectory

KINDS, NUMBERS, PHASES, STEPS, TASKS, BETA, ETA, KL = 4, 60, 20, 5, 8, 0.1, 0.2, 0.3
RIGHT = (1, 3, 0, 2)
FAVOURITE, FOLLOWED = 1.5, 1.5


class Tables:
    """The logits of writer and solver."""

    def __init__(self) -> None:
        self.writer = torch.zeros(KINDS, 4)
        self.word = torch.zeros(KINDS, 4)
        for kind, right in enumerate(RIGHT):
            self.word[kind, (right + 1) % 4] = FAVOURITE
        self.hint = FOLLOWED * torch.eye(4)
        self.reference = [x.clone() for x in (self.word, self.hint)]

    def solver(self, kind: int | None, hint: int | None, *, first: bool = False) -> torch.Tensor:
        """[4] logits of the procedures."""
        word, shown = self.reference if first else (self.word, self.hint)
        return (word[kind] if kind is not None else torch.zeros(4)) + (shown[hint] if hint is not None else 0.0)


class Sampler:
    """Writes hints or answers by the tables."""

    context = 4096

    def __init__(self, tables: Tables, *key: int | str) -> None:
        self.tables, self.key = tables, key
        self.rng = Random(repr(key))

    def bind(self, *key: int | str) -> "Sampler":
        """With an extended key."""
        return Sampler(self.tables, *self.key, *key)

    def uniform(self) -> float:
        """A draw."""
        return self.rng.random()

    def encode(self, prompt: Any) -> np.ndarray:
        """Bytes."""
        return np.frombuffer(prompt.encode(), np.uint8).astype(np.int64)

    def prompt(self, task: Task) -> Segment:
        """The problem."""
        return Segment(actor="prompt", token_ids=self.encode(task.prompt), text=str(task.prompt))

    def decode(self, token_ids: np.ndarray) -> str:
        """Text of bytes."""
        return bytes(token_ids.astype(np.uint8)).decode()

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Any, vectors: Any = None) -> list[Completion]:
        """By the form of the prompt."""
        text = self.decode(token_ids)
        kind = int(text[1]) if text.startswith("k") else None
        number = text.split()[1] if kind is not None else None
        if text.endswith("\nHint:"):
            p, form = self.tables.writer[kind or 0].softmax(-1), "h{}"
        else:
            hint = int(text.split("Hint:h")[1][0]) if "Hint:" in text else None
            p, form = self.tables.solver(kind, hint).softmax(-1), "{} of {}"
        made = []
        for drawn in self.rng.choices(range(4), weights=p.tolist(), k=n):
            own = form.format(drawn, number if number is not None else self.rng.randrange(NUMBERS))
            logp = np.full(len(own), float(p[drawn].log()) / len(own), np.float32)
            made.append(Completion(token_ids=self.encode(own), logp=logp, stop_reason="stop", version=0, text=own))
        return made


async def scored(group: Group) -> Group:
    """1 for the answer."""

    def of(t: Trajectory) -> Score:
        right = t.completion == t.task.answer
        return Score(value=float(right), status="ok" if right else "wrong")

    return replace(group, trajectories=tuple(t.scored(of(t)) for t in group))


def stepped(tables: Tables, groups: Sequence[Group], phase: str, rate: float) -> None:
    """One update of the writer or of the solver."""
    own = [tables.writer] if phase == "writer" else [tables.word, tables.hint]
    for table in own:
        table.requires_grad_()
    losses = []
    for group in groups:
        kind = int(str(group.trajectories[0].task.prompt)[1])
        rewards = [t.score.value for t in group if t.score is not None]
        if phase == "writer":
            logp = tables.writer[kind].log_softmax(-1)
            old = logp.detach()
            hints = [int(t.completion[1]) for t in group]
            pairs = [
                (a, b)
                for a, v in zip(hints, rewards, strict=True)
                for b, w in zip(hints, rewards, strict=True)
                if v > w
            ]
            for a, b in pairs:
                margin = BETA * ((logp[a] - old[a]) - (logp[b] - old[b]))
                losses.append((-torch.nn.functional.logsigmoid(margin) - ETA * logp[a]) / len(pairs))
            continue
        std = float(np.std(rewards))
        for t, reward in zip(group, rewards, strict=True):
            given = t.fact(HintGiven)
            hint = int(given.hint[1]) if given is not None and given.hint else None
            logp = tables.solver(kind, hint).log_softmax(-1)
            first = tables.solver(kind, hint, first=True).log_softmax(-1)
            advantage = (reward - float(np.mean(rewards))) / (std + 1e-6) if std else 0.0
            divergence = (logp.exp() * (logp - first)).sum()
            losses.append((KL * divergence - advantage * logp[int(t.completion[0])]) / len(group))
    if losses:
        grads = torch.autograd.grad(torch.stack(losses).sum() / TASKS, own, allow_unused=True)
    with torch.no_grad():
        for table, grad in zip(own, grads if losses else [None] * len(own), strict=True):
            table.requires_grad_(False)
            if grad is not None:
                table -= rate * grad


def measured(tables: Tables) -> dict[str, float]:
    """Shares of right hints and of right answers."""
    with torch.no_grad():
        hints = tables.writer.softmax(-1)
        answers = torch.stack(
            [torch.stack([tables.solver(k, h).softmax(-1)[RIGHT[k]] for h in range(4)]) for k in range(4)]
        )
        bare = torch.stack([tables.solver(k, None).softmax(-1)[RIGHT[k]] for k in range(4)])
        true = torch.stack([answers[k, RIGHT[k]] for k in range(4)])
        return {
            "right hints": float(torch.stack([hints[k, RIGHT[k]] for k in range(4)]).mean()),
            "right with the writer's hint": float((hints * answers).sum(1).mean()),
            "right without": float(bare.mean()),
            "right hint less a random one": float((true - answers.mean(1)).mean()),
        }


def learnt(arm: dict[str, Any], seed: int) -> dict[str, float]:
    """The shares at the end."""
    tables = Tables()
    only = arm.get("only")
    rollout = Abstracted(
        n=8,
        phases=PHASES,
        hints=Hints(count=4, sampling=Sampling()),
        bare=Bare(share=arm.get("bare", 0.25), zeroed=arm.get("zeroed", True)),
    )
    for step in range(PHASES * STEPS):
        now = rollout.at(step / (PHASES * STEPS))
        if only is not None:
            now = replace(now, phase=only)
        rng, groups = Random(f"{seed} {step}"), []
        for i in range(TASKS):
            kind, number = rng.randrange(KINDS), rng.randrange(NUMBERS)
            task = Task(key=f"{step} {i}", prompt=f"k{kind} {number}", answer=f"{RIGHT[kind]} of {number}")
            own: Any = {role: Sampler(tables, role, seed, task.key) for role in ("policy", "writer")}
            groups += asyncio.run(now.collect_scored(task, own, scored))
        stepped(tables, groups, now.phase, 8.0 if now.phase == "writer" else 2.0)
    return measured(tables)


async def asked(folder: Path, tasks: Sequence[Task], what: str) -> list[list[str]]:
    """Shares of right hints and of right answers, before and after a run, by its models."""

    def served(name: str) -> Any:
        model = Model(source=str(folder / name))
        return Native().serve(load_policy(name, model, {}, torch.device("cpu")), 0)

    sampling = Sampling(max_tokens=2)

    async def right(server: Any, task: Task, prompt: str, n: int) -> float:
        sampler = server.bind("answers", task.key, prompt)
        found = await sampler.sample(sampler.encode(prompt), n, sampling)
        return float(np.mean([c.text.strip() == task.answer for c in found]))

    async def hints(server: Any, task: Task) -> list[str]:
        sampler = server.bind("hints", task.key)
        return [c.text for c in await sampler.sample(sampler.encode(f"{task.prompt}\nHint:"), 4, sampling)]

    table = []
    for name, writer, solver in (("before", "reference", "reference"), ("after", "writer", "policy")):
        own, answers = served(writer), served(solver)
        written = await asyncio.gather(*(hints(own, task) for task in tasks))
        true = [f" h{right_procedure(int(str(task.prompt)[1]))}" for task in tasks]
        pairs = [(task, hint) for task, four in zip(tasks, written, strict=True) for hint in four]
        found = [
            [float(hint == t) for t, four in zip(true, written, strict=True) for hint in four],
            await asyncio.gather(*(right(answers, t, f"{t.prompt}\nHint:{hint}\nAnswer:", 4) for t, hint in pairs)),
            await asyncio.gather(*(right(answers, t, str(t.prompt), 16) for t in tasks)),
            await asyncio.gather(
                *(right(answers, t, f"{t.prompt}\nHint:{h}\nAnswer:", 4) for t, h in zip(tasks, true, strict=True))
            ),
        ]
        table.append([what, name, *(f"{np.mean(values):.3f}" for values in found)])
    return table


ARMS: dict[str, dict[str, Any]] = {
    "RLAD": {},
    "bare prompts rewarded": {"zeroed": False},
    "no bare prompts": {"bare": 0.0},
    "the writer alone": {"only": "writer"},
    "the solver alone, random hints": {"only": "solver"},
}


def cell(values: Sequence[float]) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--arm", type=int, default=None, help="number of one arm")
    parser.add_argument("--models", type=Path, default=None, help="folder of the models of a checkpoint")
    given = parser.parse_args()
    if given.models is not None:
        trained, held_out = holdout(Procedures(size=240).load(), 80, 0)
        table = asyncio.run(asked(given.models, held_out, "held out"))
        table += asyncio.run(asked(given.models, trained, "others"))
        columns = [
            "problems",
            "models",
            "right hints",
            "right with the writer's hint",
            "right without",
            "right with the right hint",
        ]
        print(json.dumps({"columns": columns, "table": table}, indent=1))
        return
    before = measured(Tables())
    table = [["before", *(f"{value:.2f}" for value in before.values())]]
    for number, (name, arm) in enumerate(ARMS.items()):
        if given.arm not in (None, number):
            continue
        found = [learnt(arm, seed) for seed in range(given.seeds)]
        print(name, {key: round(float(np.mean([f[key] for f in found])), 2) for key in before}, file=sys.stderr)
        table.append([name, *(cell([f[key] for f in found]) for key in before)])
    print(json.dumps({"columns": ["arm", *before], "table": table}, indent=1))


if __name__ == "__main__":
    main()
