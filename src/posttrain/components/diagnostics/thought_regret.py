"""Success of an answer that is forced after each episode of a thought, and the regret of the thoughts of a model.

Source: Meta Reinforcement Fine-Tuning, arXiv:2503.07572, and the notebooks of its release (CMU-AIRe/MRT at 1815a8c). A
trace is sampled and split into episodes. After each of them, and before the first, a text ends the thought, and
`probes` answers are sampled: their mean score is J. The normalised regret is that of `statistics/thought_regret`, with
the tokens of a prefix and of the mean answer after it.

    posttrain diagnose thought_regret RUN RUN tasks=mine.jsonl reward=match limit=256    # columns: prompt, answer

Also reported: J at the end of the trace and before the first episode, the mean tokens of a trace, and the share of
episodes after which J has not risen: words without progress.

Differs: the release has 16 traces of each of 15 problems; here a trace of each task. Where the trace has an answer of
its own, J at the end is that of a forced answer as well.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._answers import check_roles, trajectory_of
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampler, Sampling, Server, wait_for
from posttrain.errors import UserError
from posttrain.grading.pieces import Split, ranges_of, tokens_until
from posttrain.statistics.intervals import mean
from posttrain.statistics.thought_regret import normalised_regret
from posttrain.types import Completion, Group, IntArray, Message, Segment, Task


@frozen
class ThoughtRegret(Diagnostic):
    """Measures what each episode of a thought brings."""

    subjects: ClassVar[tuple[str, ...]] = ("model", "...")

    tasks: Tasks
    """What is asked."""
    reward: Reward
    """Scores forced answers, in [0, 1]."""
    split: Split = "episodes"
    """What the episodes are."""
    end: Annotated[str, Field(min_length=1)] = "\n\nTime is up.\n</think>\n\n"
    """The text after which the answer follows."""
    probes: Annotated[int, Field(ge=1, le=1000)] = 1
    """Forced answers after each episode (16 or 8 in the release); one is greedy."""
    limit: Annotated[int, Field(ge=1, le=1_000_000)] = 128
    """C: tokens over which the regret is measured, and the most of a trace."""
    answer_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 32
    """Most tokens of a forced answer."""
    first: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Number of tasks, from the first."""

    def examine(self, *subjects: Subject) -> Finding:
        """Sample a trace of each task, and answers after each of its episodes."""
        check_roles(self.reward)
        tasks = list(self.tasks.load())[: self.first]
        self.reward.check(tasks)
        rows = {subject.name: self._row(subject.serve(subject.load()), tasks) for subject in subjects}
        return Finding(values={"tasks": len(tasks), "limit": self.limit, "models": rows}, lines=self._lines(rows))

    def _row(self, server: Server, tasks: Sequence[Task]) -> dict[str, Any]:
        async def run() -> list[tuple[list[float], list[float], int]]:
            return list(await asyncio.gather(*(self._trace(server.bind("regret", task.key), task) for task in tasks)))

        found = [row for row in wait_for(run()) if np.isfinite(row[1]).all()]
        if not found:
            raise UserError("none of the forced answers could be scored; check the reward and the columns of the tasks")
        own = mean([normalised_regret(tokens, success, self.limit) for tokens, success, _ in found])
        idle = [after <= before for _, j, _ in found for before, after in pairwise(j)]
        return {
            "traces": len(found),
            "regret": own.value,
            "interval": [own.interval.low, own.interval.high],
            "success": float(np.mean([j[-1] for _, j, _ in found])),
            "at_once": float(np.mean([j[0] for _, j, _ in found])),
            "tokens": float(np.mean([length for _, _, length in found])),
            "episodes": float(np.mean([len(j) - 1 for _, j, _ in found])),
            "without_progress": float(np.mean(idle)) if idle else None,
        }

    async def _trace(self, sampler: Sampler, task: Task) -> tuple[list[float], list[float], int]:
        """Tokens and J before the first episode and after each, and the tokens of the trace."""
        prompt = sampler.prompt(task)
        [trace] = await sampler.sample(prompt.token_ids, 1, Sampling(max_tokens=self.limit), prompt.vectors)
        ends = [end for _, end in ranges_of(trace.text, self.split, self.limit)]
        cuts = [0, *dict.fromkeys(tokens_until(trace.token_ids, end, sampler.decode) for end in ends)]
        own = (self._probed(task, prompt, trace.token_ids[:cut], sampler.bind("end", cut)) for cut in cuts)
        found = await asyncio.gather(*own)
        return (
            [cut + length for cut, (length, _) in zip(cuts, found, strict=True)],
            [j for _, j in found],
            len(trace.token_ids),
        )

    async def _probed(self, task: Task, prompt: Segment, before: IntArray, sampler: Sampler) -> tuple[float, float]:
        """Mean tokens of the forced answers after a prefix, and their mean score; NaN where one has none."""
        start = np.concatenate([prompt.token_ids, before])
        given = sampler.encode_reply("", start, Message(role="user", content=self.end))
        how = Sampling(temperature=0.0 if self.probes == 1 else 1.0, max_tokens=self.answer_tokens)
        written: list[Completion] = await sampler.sample(
            np.concatenate([start, given]), self.probes, how, prompt.vectors
        )
        text = np.concatenate([before, given]).astype(np.int64)
        rows = tuple(trajectory_of(task, prompt, sampler, text, c, i) for i, c in enumerate(written))
        group = await scored(Group(key=task.key, trajectories=rows), self.reward, RewardContext())
        values = [t.score.value if t.score is not None and t.score.status != "error" else np.nan for t in group]
        return float(np.mean([len(c.token_ids) for c in written])), float(np.mean(values))

    def _lines(self, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """A table."""
        width = max(map(len, rows))
        lines = [
            f"normalised regret over {self.limit} tokens",
            f"{'':{width}}  regret                  success  at once  tokens  episodes  without progress",
        ]
        for name, row in rows.items():
            low, high = row["interval"]
            idle = "-" if row["without_progress"] is None else f"{row['without_progress']:.2f}"
            lines.append(
                f"{name:{width}}  {row['regret']:.3f} [{low:.3f}, {high:.3f}]  {row['success']:7.3f}  "
                f"{row['at_once']:7.3f}  {row['tokens']:6.1f}  {row['episodes']:8.2f}  {idle:>16}"
            )
        return lines
