"""Episodes of a control environment of Gymnasium with a flow as the policy: each action is the end point of a chain.

Source: the loop of ReinFlow, Zhang et al. 2025, arXiv:2505.22094: the chain of every action is kept with its
log-probability; the end point is clipped to the action space before the environment gets it, and the density remains
that of the unclipped one. Environments are those of Gymnasium (Towers et al. 2024, arXiv:2407.17032), by id.

An observation is a token with a vector, and so is a chain (the flow's ``token=chain``). An episode is a sequence of
observation, action, observation, action, so that time steps of estimators are those of the environment. The reward of a
turn is the reward of its segment. The initial state is drawn by the task's key, so that all episodes of a task, and
those of different models, have the same one.

Differs: an episode that is truncated at `max_turns` ends like any other, without a bootstrap value.
"""

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field, JsonValue, PositiveInt

from posttrain.component import frozen
from posttrain.component.user_code import require
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import sampled_segment, sampler_of
from posttrain.datasets import chains
from posttrain.datasets.reaching import Reaching
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import FloatArray, Group, Segment, StopReason, Task, Trajectory


@frozen
class Control(Rollout):
    """Samples `n` episodes from the initial state of the task."""

    id: str = "reaching"
    """Id of the environment: ``reaching`` for the small one of this package, or any of Gymnasium whose observations and
    actions are vectors (``Pendulum-v1``)."""
    arguments: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Keyword arguments of the environment."""
    n: PositiveInt = 1
    """Episodes per task."""
    max_turns: PositiveInt = 200
    """Most actions of an episode."""
    episodic: bool = False
    """Whether the rewards of all turns are given together, with the last one."""
    sampling: Sampling = Sampling()
    """How actions are sampled; at temperature 0 only the start of a chain has noise."""
    role: str = "policy"
    """The flow that acts."""

    @property
    def temperature(self) -> float:
        """Temperature of the Gaussians that chains are sampled from."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """Check that the environment is available, and that its spaces are vectors."""
        self._environment().close()

    def held_out(self, n: int, sampling: Sampling) -> "Control":
        """The same environment."""
        return replace(self, n=n, sampling=sampling)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` episodes."""
        sampler = sampler_of(self.role, samplers)
        episodes = [self._episode(task, sampler.bind("episode", i), i) for i in range(self.n)]
        return [Group(key=task.key, trajectories=tuple(await asyncio.gather(*episodes)))]

    async def _episode(self, task: Task, sampler: Sampler, sample: int) -> Trajectory:
        """One episode, until it terminates or is truncated."""
        environment = self._environment()
        observation, _ = environment.reset(seed=zlib.crc32(task.key.encode()))
        width = self._width(sampler, observation)
        segments: list[Segment] = []
        stop_reason: StopReason = "length"
        for turn in range(self.max_turns):
            segments.append(self._observed(observation, width, turn))
            (completion,) = await sampler.sample(segments[-1].token_ids, 1, self.sampling, segments[-1].vectors)
            action = np.array(completion.text.split(), np.float32)
            space = environment.action_space
            if action.shape != space.shape:
                raise UserError(
                    f"the environment '{self.id}' takes actions of {space.shape[0]} numbers, and role "
                    f"'{self.role}' gives {len(action)}; set models.{self.role}.shape.dims"
                )
            clipped = np.clip(action, space.low, space.high)
            observation, reward, terminated, truncated, _ = environment.step(clipped)
            chain = sampled_segment(completion, self.role, turn=turn)
            segments.append(replace(chain, reward=float(reward), text=f"{completion.text}\n"))
            if terminated or truncated:
                stop_reason = "environment" if terminated else "length"
                break
        environment.close()
        segments = _together(segments) if self.episodic else segments
        return Trajectory(task=task, segments=tuple(segments), stop_reason=stop_reason, sample=sample)

    def _observed(self, observation: FloatArray, width: int, turn: int) -> Segment:
        """An observation as a token; the first one is the prompt."""
        numbers = np.asarray(observation, np.float32).reshape(-1)
        actor = "environment" if turn else "prompt"
        text = f"[{' '.join(f'{number:.3g}' for number in numbers)}]\n"
        return chains.condition_segment(numbers, width, actor=actor, turn=turn, text=text)

    def _width(self, sampler: Sampler, observation: FloatArray) -> int:
        """Width of a token's vector. Raises `UserError` for a model that is not conditioned on such observations."""
        count = int(np.asarray(observation).size)
        vectors = sampler.prompt(Task(key="", prompt=" ".join(["0"] * count))).vectors
        if vectors is None:
            raise UserError(f"the control rollout needs a flow, and role '{self.role}' writes text; take 'turns'")
        return int(vectors.shape[1])

    @property
    def user_code(self) -> tuple[str, ...]:
        """The module that Gymnasium imports for an id like ``my_module:MyEnvironment-v0``."""
        return (self.id,) if ":" in self.id else ()

    def _environment(self) -> Any:
        """A new instance of the environment."""
        if self.id == "reaching":
            return Reaching()
        try:
            import gymnasium
        except ModuleNotFoundError:
            raise UserError(
                f"the environment '{self.id}' is one of Gymnasium, which is not installed: pip install '.[gymnasium]'"
            ) from None
        settings: dict[str, Any] = dict(self.arguments)
        for module in self.user_code:
            require(module)
        try:
            environment: Any = gymnasium.make(self.id, **settings)
        except Exception as error:
            raise UserError(f"Gymnasium cannot make the environment '{self.id}': {error}") from None
        for name in ("observation_space", "action_space"):
            space = getattr(environment, name)
            if not isinstance(space, gymnasium.spaces.Box):
                raise UserError(f"the {name} of '{self.id}' is {space}; a flow needs a Box of numbers")
        return environment


def _together(segments: Sequence[Segment]) -> list[Segment]:
    """The segments with the sum of their rewards at the last one."""
    whole = float(sum(segment.reward for segment in segments))
    bare = [replace(segment, reward=0.0) for segment in segments]
    return [*bare[:-1], replace(bare[-1], reward=whole)]
