"""Whether writers who act one after the other learn to make an effort for a common result (MAC-SPGG).

Source: arXiv:2508.02076, and the released configuration. The writers are frozen; for each a small network chooses
temperature, top-p, top-k and tokens from what the writer reads, and learns by PPO from its own payoff
(`_decoding_nets`). The effort of a writer is the score of its text in [0, 1], the last text is the result. Payoffs
have a convex cost, a synergy with those before, a share of the result, and a penalty for all below a benchmark
(`_goods`). Beside it: what backward induction and independent tables do with these payoffs, on three levels of effort.

    posttrain diagnose public_goods RUN RUN RUN tasks=mine.jsonl reward=math_verify    # columns: prompt, answer
    posttrain diagnose public_goods pebble pebble tasks=arithmetic reward=match 'payoff={penalty: 0}' view=full

Differs: forms of cost and synergy are not published; these are the simplest with their properties. The score is the
reward's, not that of a trained evaluator of four qualities. The engine has no repetition and presence penalties, so
four of the six parameters are chosen. Features are hashed tokens, not an embedding of 896 numbers; no dropout, whose
noise would be in the ratio; a fixed number of batches.

Measured here over 5 seeds (``python docs/experiments/public_goods.py tables``, or ``writers``). Tables of three agents,
efforts 0, 1/2 and 1, cost .9: with synergy and penalty full effort is the equilibrium and is learned (1.00). Neither:
0, learned .01. Synergy alone: 1/2, learned .48. The penalty alone also has full effort as its equilibrium, but 1 of 5
seeds finds it: what makes it learnable is the synergy.

Three writers, one new model, whose score is the number of tokens: the last one goes from .50 to .88 [.84, .92] with
both, .59 [.56, .63] with neither (.60 is its best), .87 with synergy alone, and .73 [.55, .90] with the penalty alone,
where 2 of 5 seeds reach the benchmark. The first, whose text is not the result, falls from .54 to .26 with both and to
.12 to .16 otherwise. Three bundled models on sums with the defaults, one seed: the first falls from .61 to .42, as its
own payoff rewards (-1.71 to -1.65); the others cannot add after another's text (.00 and .05), before or after.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._answers import check_roles, trajectory_of
from posttrain.components.diagnostics._goods import Payoff, equilibrium, learnt
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampler, Server, wait_for
from posttrain.errors import UserError
from posttrain.types import Group, Message, Segment, Task

ROWS: Final = (294,)
LEVELS: Final = (0.0, 0.5, 1.0)
"""Efforts of the tables."""


@frozen
class PublicGoods(Diagnostic):
    """Trains networks for sampling parameters, and compares the efforts before and after."""

    subjects: ClassVar[tuple[str, ...]] = ("writer", "...")

    tasks: Tasks
    """What is written about."""
    reward: Reward
    """The score of a text, cut to [0, 1]: the effort of its writer."""
    payoff: Payoff = Payoff()
    """What each writer gets."""
    view: Literal["partial", "full"] = "partial"
    """Whether a writer reads the text before its own, or all of them."""
    rounds: Annotated[int, Field(ge=0, le=100_000)] = 40
    """Batches that are learned from."""
    batch: PositiveInt = 32
    """Episodes of a batch."""
    tokens: tuple[Annotated[int, Field(ge=1, le=100_000)], Annotated[int, Field(ge=1, le=100_000)]] = (8, 32)
    """Range of the most tokens of a text (100 to 400 in the paper)."""
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Decides weights and draws."""

    def examine(self, *subjects: Subject) -> Finding:
        """Train, and play the same tasks before and after."""
        import torch

        from posttrain.components.diagnostics._decoding_nets import HASHED, Agent

        check_roles(self.reward)
        tasks = self.tasks.load()
        servers = [subject.serve(subject.load()) for subject in subjects]
        generator = torch.Generator().manual_seed(self.seed)
        agents = [Agent(width=HASHED + len(subjects), generator=generator) for _ in subjects]
        before = self._played(servers, agents, self._chosen(tasks, -1), -1)
        left_out = 0
        for number in range(self.rounds):
            game = self._played(servers, agents, self._chosen(tasks, number), number)
            payoff_BN, kept_B = game["payoff_BN"], game["kept_B"]
            left_out += int((~kept_B).sum())
            for i, agent in enumerate(agents):
                if kept_B.any():
                    agent.learn(game["seen"][i][kept_B], game["action"][i][kept_B], payoff_BN[kept_B, i])
        after = self._played(servers, agents, self._chosen(tasks, -1), -1)
        values = {
            "agents": [subject.name for subject in subjects],
            "left_out": left_out,
            "before": _summary(before),
            "after": _summary(after),
            "tables": self._tables(len(subjects)),
        }
        return Finding(values=values, lines=_lines(values))

    def _chosen(self, tasks: Sequence[Task], number: int) -> list[Task]:
        """The tasks of a batch, drawn; those of number -1 are the first ones."""
        if number < 0:
            return [tasks[i % len(tasks)] for i in range(2 * self.batch)]
        rng = np.random.Generator(np.random.Philox(key=[self.seed, number]))
        return [tasks[i] for i in rng.integers(len(tasks), size=self.batch)]

    def _played(self, servers: Sequence[Server], agents: Sequence[Any], tasks: Sequence[Task], number: int) -> Any:
        """Episodes of a batch: what was seen and done, efforts and payoffs. Number -1 does not draw actions."""
        import torch

        from posttrain.components.diagnostics._decoding_nets import features, sampling_of

        texts: list[list[str]] = [[] for _ in tasks]
        efforts, seen, actions = [], [], []
        for place, (server, agent) in enumerate(zip(servers, agents, strict=True)):
            samplers = [server.bind("public_goods", self.seed, number, place, i) for i in range(len(tasks))]
            shown = [self._shown(task, own) for task, own in zip(tasks, texts, strict=True)]
            prompts = [sampler.encode(text) for sampler, text in zip(samplers, shown, strict=True)]
            seen_BD = torch.from_numpy(np.stack([features(ids, place, len(agents)) for ids in prompts]))
            action_BK = agent.act(seen_BD, greedy=number < 0)
            samplings = [sampling_of(action, self.tokens) for action in action_BK.tolist()]
            written = wait_for(
                _gathered(
                    self._written(*those) for those in zip(tasks, prompts, samplers, samplings, texts, strict=True)
                )
            )
            efforts.append(written)
            seen.append(seen_BD)
            actions.append(action_BK)
        effort_BN = np.array(efforts, np.float64).T
        payoff_BN = torch.tensor(
            np.array([self.payoff.of(own, float(own[-1])) for own in effort_BN]), dtype=torch.float32
        )
        kept_B = np.isfinite(effort_BN).all(1)
        return {
            "seen": seen,
            "action": actions,
            "effort_BN": effort_BN,
            "payoff_BN": payoff_BN,
            "kept_B": torch.from_numpy(kept_B),
            "reached_B": effort_BN[:, -1] >= self.payoff.benchmark,
        }

    async def _written(self, task: Task, prompt: Any, sampler: Sampler, sampling: Any, texts: list[str]) -> float:
        """The score of a text, which is added to the episode's; NaN where it could not be scored."""
        if len(prompt) >= sampler.context:
            raise UserError(
                f"task {task.key}: with the texts before it the prompt has {len(prompt)} tokens, which leaves no room "
                f"in the context of {sampler.context}; lower tokens, or write view=partial"
            )
        [completion] = await sampler.sample(prompt, 1, sampling)
        start = Segment(actor="prompt", token_ids=sampler.encode(task.prompt))
        own = trajectory_of(task, start, sampler, np.zeros(0, np.int64), completion, 0)
        [done] = await scored(Group(key=task.key, trajectories=(own,)), self.reward, RewardContext())
        texts.append(completion.text)
        if done.score is None or done.score.status == "error":
            return float("nan")
        return min(max(done.score.value, 0.0), 1.0)

    def _shown(self, task: Task, texts: Sequence[str]) -> str | tuple[Message, ...]:
        """What a writer reads: the task, texts of those before it, and the task again."""
        own = list(texts[-1:]) if self.view == "partial" else list(texts)
        if isinstance(task.prompt, str):
            return "".join(f"{task.prompt}{text}\n" for text in own) + task.prompt
        *first, last = task.prompt
        joined = "\n\n".join([*(f"{last['content']}\n{text}" for text in own), last["content"]])
        return (*first, Message(role=last["role"], content=joined))

    def _tables(self, count: int) -> dict[str, Any]:
        """Three levels of effort: backward induction, and tables that learn."""
        solved = equilibrium(self.payoff, LEVELS, count) if count <= 8 else None
        learning = learnt(self.payoff, LEVELS, count, seed=self.seed, full=self.view == "full") if count <= 8 else None
        return {
            "equilibrium": list(solved.effort) if solved else None,
            "unique": solved.unique if solved else None,
            "learnt": learning.mean(0).tolist() if learning is not None else None,
        }


async def _gathered(tasks: Any) -> list[float]:
    return list(await asyncio.gather(*tasks))


def _summary(game: Any) -> dict[str, Any]:
    """Means over the episodes that could be scored."""
    kept_B = game["kept_B"].numpy()
    if not kept_B.any():
        raise UserError("none of the texts could be scored; check the reward and the columns of the tasks")
    return {
        "effort": game["effort_BN"][kept_B].mean(0).tolist(),
        "payoff": game["payoff_BN"].numpy()[kept_B].mean(0).tolist(),
        "reached": float(game["reached_B"][kept_B].mean()),
        "episodes": int(kept_B.sum()),
    }


def _lines(values: Mapping[str, Any]) -> list[str]:
    """Efforts and payoffs before and after, and those of tables."""

    def several(numbers: Sequence[float] | None) -> str:
        return "unknown" if numbers is None else ", ".join(f"{number:.2f}" for number in numbers)

    lines = [f"writers in their order: {', '.join(values['agents'])}"]
    for name in ("before", "after"):
        own = values[name]
        lines.append(
            f"{name:6}  efforts {several(own['effort'])}  payoffs {several(own['payoff'])}  "
            f"benchmark reached {own['reached']:.0%}"
        )
    tables = values["tables"]
    lines.append(f"tables  equilibrium {several(tables['equilibrium'])}  learnt {several(tables['learnt'])}")
    return lines
