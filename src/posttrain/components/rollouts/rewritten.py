"""Where every rollout of a task fails, the policy rewrites the expert's solution, and learns from its own wording.

Source: the expert-guided self-reformulation (EGSR) of Zhang et al. 2025, arXiv:2505.08364: on problems that the policy
fails, it sees the expert's solution and writes one itself, which takes the place of failures in the group. Its formulas
are in no source that could be read: what is here is the safe choice of each. The trigger is a group without a correct
rollout; `replaced` failures are replaced, each by a rewriting that is verified to be correct; it is learned from under
the bare prompt, without the solution.

A rewriting was not sampled under the bare prompt. Old log-probabilities are therefore, by `ratio`:

    one     those of the policy under the bare prompt before the update: the ratio is 1 at the first one
    true    those of its sampling, after the expert's solution: the importance ratio of what was sampled (Guide-GRPO,
            arXiv:2506.13923)

Differs: unverified, see above. A rewriting that does not fit after the bare prompt, or is not correct, is not used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import AfterValidator, PositiveInt
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._segments import answers, check_demonstrations, prompt_segment, sampler_of
from posttrain.datasets.templates import check_places, places, prompt_from
from posttrain.engines import Sampler, Sampling
from posttrain.types import Completion, Fact, Group, Segment, Task, Trajectory

REWRITE = "{question}\n\nA solution:\n{solution}\n\nWrite a solution in your own words, with the answer at its end.\n"
"""The prompt for a rewriting."""


def _check_request(request: str) -> str:
    """Refuse a request that lacks the question, or what is to be rewritten. Raises a validation error."""
    found = places(request)
    if "question" not in found or not found & {"solution", "answer"}:
        raise PydanticCustomError("request", "a request to rewrite needs {{question}}, and {{solution}} or {{answer}}")
    return check_places(request, ("question", "solution", "answer"))


@dataclass(frozen=True, kw_only=True)
class Rewriting(Fact):
    """Source of a rewriting."""

    rewritten_from: str
    """The prompt with the solution in it."""


@frozen
class Rewritten(Rollout):
    """Samples `n` completions, and rewritings of the solution where all of them fail."""

    n: PositiveInt = 8
    """Completions per task."""
    replaced: PositiveInt = 1
    """Failures that are replaced, at most; the last ones of the group."""
    tries: PositiveInt = 4
    """Rewritings that are sampled and verified; the first correct ones are used."""
    ratio: Literal["one", "true"] = "one"
    """Old log-probabilities of a rewriting; see above."""
    request: Annotated[str, AfterValidator(_check_request)] = REWRITE
    """The prompt for a rewriting. Placeholders: question, solution (the first demonstration, or the answer of a task
    without one) and answer. In a chat it replaces the last message."""
    sampling: Sampling = Sampling()
    """How completions and rewritings are sampled."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """Some task must have an expert's solution."""
        if not any(task.answer for task in tasks):
            check_demonstrations(tasks, self.kind)

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group of `n`: completions, and rewritings in place of failures."""
        sampler = sampler_of("policy", samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        own = await scorer(Group(key=task.key, trajectories=answers(task, prompt, completions, "policy")))
        valid = [t for t in own if t.score is not None and t.score.status != "error"]
        solution = task.demonstrations[0] if task.demonstrations else task.answer or ""
        if not valid or any(t.solved for t in valid) or not solution.strip():
            return [own]
        found = await self._rewritings(task, prompt, sampler, solution, scorer)
        if not found:
            return [own]
        out = {id(t) for t in valid[-len(found) :]}
        return [replace(own, trajectories=(*(t for t in own if id(t) not in out), *found))]

    async def _rewritings(
        self, task: Task, prompt: Segment, sampler: Sampler, solution: str, scorer: Scorer
    ) -> list[Trajectory]:
        """The first correct rewritings, as completions of the bare prompt."""
        values = {"solution": solution, "answer": task.answer or solution}
        shown = sampler.prompt(replace(task, prompt=prompt_from(task, self.request, values)))
        if len(shown) >= sampler.context:
            return []
        written = await sampler.bind("rewrite").sample(shown.token_ids, self.tries, self.sampling, shown.vectors)
        fitting = [c for c in written if c.stop_reason == "stop" and len(prompt) + len(c.token_ids) <= sampler.context]
        if not fitting:
            return []
        fact = Rewriting(rewritten_from=shown.text)
        group = await scorer(
            Group(
                key=task.key,
                trajectories=tuple(
                    Trajectory(
                        task=task,
                        segments=(prompt, self._segment(completion)),
                        stop_reason=completion.stop_reason,
                        sample=self.n + i,
                        facts=(fact,),
                    )
                    for i, completion in enumerate(fitting)
                ),
            )
        )
        return [t for t in group if t.score is not None and t.score.status != "error" and t.solved][: self.replaced]

    def _segment(self, completion: Completion) -> Segment:
        """What is learned from: without log-probabilities for the ratio ``one``."""
        true = self.ratio == "true"
        return Segment(
            actor="policy" if true else "demonstration",
            token_ids=completion.token_ids,
            trained=True,
            logp=completion.logp if true else None,
            entropy=completion.entropy if true else None,
            version=completion.version,
            text=completion.text,
        )
