"""Value model: regresses the values of states.

Source: the value model of ReST-RL, arXiv:2508.19576, and its released code (github.com/THUDM/ReST-RL, rms): a scalar
head on the last token, mean squared error, with the value of every expanded state and the reward of every complete
rollout of a search as targets. With v the output of the model at the last token:

    loss = (v - target)^2

Without a search the targets are the ratings of the tasks, such as `posttrain generate` writes (columns ``completion``
and ``rating``; no end token is appended where ``complete`` is false, since such a completion is a prefix).

Differs: every step searches anew, so that no two steps learn from the same tree, where the authors collect once and
pass over the data twice (`learner.epochs` passes over the data of each step).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.reducers import Reducer
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.search import Found, Search
from posttrain.components.tasks import Tasks
from posttrain.datasets.order import shuffled
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import SCORE, VALUE_TARGET
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import Step, fit_role
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.prompts import check_prompts
from posttrain.stages.rl.collect import stop_if_grading_fails
from posttrain.stages.rl.metrics import rollout_metrics
from posttrain.training.settings import Learning
from posttrain.types import Group, IntArray, PerToken, Task, Tokens

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.packing import Example

Rating = tuple[IntArray, float]
"""Token ids of a sequence, and its value."""


@frozen
class ValueModelTraining(Stage):
    """Training of a model with a reward head on values of states."""

    reducer: Reducer
    search: Search | None = None
    """Collects states and their values with the current models; None takes the ratings of the tasks."""
    reward: Reward | None = None
    """Scores the rollouts of the search; required with a search."""
    role: str = "value"
    """The model that learns; it needs ``head: reward`` and ``trained: true``."""
    steps: PositiveInt = 20
    """Optimizer steps, or rounds of searching and learning."""
    batch: PositiveInt = 16
    """Tasks of the search in each step; without a search, rated completions."""
    learner: Learning = Learning()
    """How the value model is updated."""
    max_grader_errors: float = 0.5
    """Share of a step's rollouts that could not be scored, at which the run stops."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""

    @model_validator(mode="after")
    def check_reward(self) -> Self:
        """Require a reward with a search, and a search that scores by the reward."""
        if self.search is not None and not self.search.uses_rewards:
            raise PydanticCustomError(
                "search", "a search that uses a value model gives no targets for one; set search.value_role=null"
            )
        if (self.search is None) != (self.reward is None):
            raise PydanticCustomError("search", "search and reward go together: give both, or none of them")
        return self

    @property
    def roles(self) -> frozenset[str]:
        """The value model, and the roles that sample and score."""
        searching = self.search.roles if self.search is not None else frozenset()
        return frozenset({self.role}) | searching | (self.reward.roles if self.reward is not None else frozenset())

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The scores of the value model, and the needs of the search and the reward."""
        own = Need(signal=SCORE, role=self.role, path="role", setting="role")
        parts = (("search", self.search), ("reward", self.reward))
        return [own, *(need for path, part in parts for need in needs_of(path, part, role="policy"))]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Prompts must leave room for an answer. Without a search, there must be ratings that fit into the context."""
        if self.search is not None:
            check_prompts(models["policy"], tasks, f"the {self.kind} stage")
            return
        rated_sequences(models.get(self.role, models["policy"]), tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """The setting `steps`."""
        return self.steps

    def run(self, models: Models, context: StageContext) -> Models:
        """Collect and learn, and return the models with the value model's new weights."""
        from posttrain.training.learner import Loss

        rated = rated_sequences(models[self.role], context.tasks) if self.search is None else []

        def examples(step: Step) -> "list[Example]":
            if self.search is not None:
                with context.phase("sample"):
                    return examples_of(self._collect(models, context, step))
            return examples_of([rated[i] for i in shuffled(len(rated), self.batch, step.index, context.seed)])

        loss = Loss(per_token=squared_error, reducer=self.reducer, needs=frozenset({SCORE}))
        return fit_role(
            context, models, role=self.role, learning=self.learner, loss=loss, steps=self.steps, examples=examples
        )

    def _collect(self, models: Models, context: StageContext, step: Step) -> list[Rating]:
        """Search on the step's tasks; returns a rating for every state and every complete rollout."""
        results = self._search(models, context, step.index)
        groups = [Group(key=found.trajectories[0].task.key, trajectories=found.trajectories) for found in results]
        context.groups = groups
        metrics = step.record.metrics
        metrics |= rollout_metrics(groups)
        for name in sorted({name for found in results for name in found.statistics}):
            metrics[f"search/{name}"] = float(np.mean([found.statistics[name] for found in results]))
        stop_if_grading_fails(groups, self.max_grader_errors)
        return [rating for found in results for rating in ratings_of(found)]

    def _search(self, models: Models, context: PreviewContext, step: int) -> list[Found]:
        """The results of the search on the tasks of a step."""
        search, reward = self.search, self.reward
        assert search is not None and reward is not None, "checked when the stage was made"

        async def one(place: int, task: Task) -> Found:
            samplers = context.samplers(models, step, place)
            scoring = RewardContext(step=step, samplers=samplers)
            return await search.search(task, samplers, lambda group: scored(group, reward, scoring))

        async def run_all() -> list[Found]:
            return list(await asyncio.gather(*(one(place, task) for place, task in enumerate(tasks))))

        tasks = [context.tasks[i] for i in shuffled(len(context.tasks), self.batch, step, context.seed)]
        return wait_for(run_all())

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of ratings, their mean, and the first five."""
        if self.search is None:
            rated = rated_sequences(models.get(self.role, models["policy"]), context.tasks)
        else:
            rated = [rating for found in self._search(models, context, 0) for rating in ratings_of(found)]
        values = [value for _, value in rated]
        policy = models["policy"]
        return [
            f"{len(rated)} ratings{'' if self.search is None else ' in the first step'}, mean {np.mean(values):.3g}",
            *(f"{value:.3g}  {policy.tokenizer.decode(ids)!r}" for ids, value in rated[:5]),
        ]


def squared_error(tokens: Tokens) -> PerToken:
    """[T] squared error of the scores at the last tokens."""
    assert tokens.value_target_T is not None, "every example has one"
    error_T = tokens[SCORE] - tokens.value_target_T
    metrics = {"value": tokens[SCORE], "value_target": tokens.value_target_T, "value_error": error_T.abs()}
    return PerToken(loss_T=error_T**2, metrics={name: x_T.detach() for name, x_T in metrics.items()})


def ratings_of(found: Found) -> list[Rating]:
    """Every expanded state with its mean, and every complete rollout with its reward where the search gives those too,
    without failed scores.
    """
    states = [(state.token_ids, state.value) for state in found.states]
    rollouts = () if found.states_only else zip(found.trajectories, found.values, strict=True)
    whole = [(t.token_ids, value) for t, value in rollouts]
    return [(ids, value) for ids, value in (*states, *whole) if np.isfinite(value)]


def examples_of(rated: Sequence[Rating]) -> "list[Example]":
    """Rated sequences as examples in which only the last token is trained."""
    from posttrain.training.packing import Example

    return [
        Example(
            token_ids=ids,
            positions=np.array([len(ids) - 1], np.int64),
            columns={VALUE_TARGET: np.array([value], np.float32)},
            turn_T=np.zeros(1, np.int64),
            group=i,
            reward=value,
        )
        for i, (ids, value) in enumerate(rated)
    ]


def rated_sequences(policy: "Policy", tasks: Sequence[Task]) -> list[Rating]:
    """The rated completions of the tasks. Raises `UserError` if there are none or one exceeds the context."""
    rated = []
    for task in tasks:
        prompt_ids = policy.tokenizer.encode_prompt(task.prompt)
        for item in task.rated:
            written = policy.tokenizer.encode_completion(task.prompt, item.completion)
            if task.fields.get("complete") is False:
                written = written[:-1]
            ids = np.concatenate([prompt_ids, written])
            if not 0 < len(ids) <= policy.body.context:
                raise UserError(
                    f"task {task.key}: prompt and completion are {len(ids)} tokens, and the model's context is "
                    f"{policy.body.context}; shorten or leave out the row"
                )
            rated.append((ids, item.rating))
    if not rated:
        raise UserError(
            f"none of the {len(tasks)} tasks has a rated completion to learn from; give columns named completion and "
            "rating (posttrain generate writes them), or a search that collects them"
        )
    return rated
