"""Keeps the weights of the step with the best validation, for training that overfits early.

The model is validated on tasks of its own, which are neither trained on nor held out. At the end of the stage it has
the weights of the best step, the earlier one of equals. They are kept in a role, a copy of the trained one, so that
they are in every checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling, wait_for
from posttrain.errors import UserError
from posttrain.stages.context import Models, StageContext
from posttrain.stages.fit import Step
from posttrain.types import Group, Segment, Task, Trajectory

if TYPE_CHECKING:
    from posttrain.policies import Policy

VALIDATION: Final = "validation"
"""Name of the tasks among those that the stage uses beside its own."""


@frozen
class Best:
    """Which weights are the best: those with the most correct greedy answers."""

    tasks: Tasks
    """The tasks of the validation."""
    reward: Reward
    """Scores the answers; the mean score decides."""
    every: PositiveInt = 10
    """Steps between validations; the last step is always validated."""
    max_tokens: PositiveInt = 64
    """Most tokens of an answer."""
    role: str = "best"
    """The role that keeps the weights: `models.<role>` with the source ``role:`` and the trained role."""

    @property
    def roles(self) -> frozenset[str]:
        """The role that keeps the weights, and those of the reward."""
        return frozenset({self.role}) | self.reward.roles


@dataclass(frozen=True, kw_only=True)
class Validation:
    """The validations of one stage."""

    best: Best
    trained: str
    """The role that is trained."""
    models: Models
    context: StageContext
    known: dict[str, Any]
    """What was saved in the checkpoint: value and step of the best weights, if there are any."""

    def after(self, step: Step, memory: dict[str, Any]) -> None:
        """Validate if it is due, and keep the weights if they are the best so far."""
        if (step.index + 1) % self.best.every and step.index + 1 != step.total:
            return
        with self.context.phase("validate"):
            value = self._validate()
        step.record.metrics["validation"] = value
        if "value" not in memory or value > memory["value"]:
            _copy(self.models[self.trained], self.models[self.best.role])
            memory |= {"value": value, "step": step.index + 1}
            self.known.update(memory)
        step.record.metrics |= {"validation/best": memory["value"], "validation/step": float(memory["step"])}

    def take_best(self) -> None:
        """Give the trained role the best weights; a stage that ended before its first validation keeps its own."""
        if "value" in self.known:
            _copy(self.models[self.best.role], self.models[self.trained])

    def _validate(self) -> float:
        """Mean score of greedy answers. Raises `UserError` where none could be scored."""
        tasks: Sequence[Task] = self.context.further[VALIDATION]
        sampler = self.context.samplers(self.models, 0)[self.trained]
        sampling = Sampling(temperature=0.0, max_tokens=self.best.max_tokens)

        async def one(task: Task) -> Group:
            prompt = sampler.prompt(task)
            [found] = await sampler.sample(prompt.token_ids, 1, sampling, prompt.vectors)
            own = Segment(actor=self.trained, token_ids=found.token_ids, text=found.text, logp=found.logp)
            answer = Trajectory(task=task, segments=(prompt, own), stop_reason=found.stop_reason)
            return await scored(Group(trajectories=(answer,), key=task.key), self.best.reward, RewardContext())

        async def run() -> list[Group]:
            from asyncio import gather

            return list(await gather(*map(one, tasks)))

        scores = [t.score for group in wait_for(run()) for t in group]
        values = [score.value for score in scores if score is not None and score.status != "error"]
        if not values:
            raise UserError("best: no answer of the validation could be scored; see best.reward and best.tasks")
        return sum(values) / len(values)


def _copy(source: "Policy", target: "Policy") -> None:
    """Copy weights in place. Raises `UserError` for models of other shapes."""
    import torch

    theirs = dict(source.named_parameters())
    ours = dict(target.named_parameters())
    if {name: p.shape for name, p in theirs.items()} != {name: p.shape for name, p in ours.items()}:
        raise UserError(
            "best: the role that keeps the best weights has another shape than the trained one; give it the source "
            "role:policy, without adapters"
        )
    with torch.no_grad():
        for name, parameter in ours.items():
            parameter.copy_(theirs[name])
    target.version = source.version
