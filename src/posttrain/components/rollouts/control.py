"""Episodes of a control task of Gymnasium, with a flow that acts: each action is the end point of a chain.

Source: the loop of ReinFlow, Zhang et al. 2025, arXiv:2505.22094: the chain of every action is kept with its
log-probability, the end point is cut to the action's box before the world gets it, and the density stays that of the
uncut one. Worlds are those of Gymnasium (Towers et al. 2024, arXiv:2407.17032), by id.

An observation is a token with a vector, and so is a chain (the flow's ``token=chain``), so that an episode is
observation, action, observation, action, and what estimators call time is the world's. A turn's pay is the reward of
its segment. The world's first state is drawn by the task (its key), so that the attempts at a task, and two models,
begin alike.

Differs: an episode that is cut at `max_turns` ends like any other: nothing is added for what might have come.
"""

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field, JsonValue, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import sampled_segment, sampler_of
from posttrain.datasets import chains
from posttrain.datasets.reaching import Reaching
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import FloatArray, Group, Segment, StopReason, Task, Trajectory


@frozen
class Control(Rollout):
    """`n` episodes from the state that the task draws."""

    id: str = "reaching"
    """Of the environment: ``reaching`` for the small one of this package, or any of Gymnasium with numbers for
    observations and actions (``Pendulum-v1``)."""
    arguments: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Settings that the environment is made with."""
    n: PositiveInt = 1
    """Episodes per task."""
    max_turns: PositiveInt = 200
    """Actions after which an episode ends anyway."""
    sampling: Sampling = Sampling()
    """How actions are drawn; at temperature 0 there is noise in the start of a chain only."""
    role: str = "policy"
    """The flow that acts."""

    @property
    def temperature(self) -> float:
        """Of the Gaussians that chains are drawn from."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """The environment must be there, and made of numbers."""
        self._world().close()

    def held_out(self, n: int, sampling: Sampling) -> "Control":
        """The same world."""
        return replace(self, n=n, sampling=sampling)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group."""
        sampler = sampler_of(self.role, samplers)
        episodes = [self._episode(task, sampler.bind("episode", i), i) for i in range(self.n)]
        return [Group(key=task.key, trajectories=tuple(await asyncio.gather(*episodes)))]

    async def _episode(self, task: Task, sampler: Sampler, sample: int) -> Trajectory:
        """Act until the world or the limit ends it."""
        world = self._world()
        seen, _ = world.reset(seed=zlib.crc32(task.key.encode()))
        width = self._width(sampler, seen)
        segments: list[Segment] = []
        stop_reason: StopReason = "length"
        for turn in range(self.max_turns):
            segments.append(self._observed(seen, width, turn))
            (completion,) = await sampler.sample(segments[-1].token_ids, 1, self.sampling, segments[-1].vectors)
            action = np.array(completion.text.split(), np.float32)
            if action.shape != world.action_space.shape:
                raise UserError(
                    f"the environment '{self.id}' takes actions of {world.action_space.shape[0]} numbers, and role "
                    f"'{self.role}' gives {len(action)}; set models.{self.role}.shape.dims"
                )
            cut = np.clip(action, world.action_space.low, world.action_space.high)
            seen, paid, ended, late, _ = world.step(cut)
            chain = sampled_segment(completion, self.role, turn=turn)
            segments.append(replace(chain, reward=float(paid), text=f"{completion.text}\n"))
            if ended or late:
                stop_reason = "environment" if ended else "length"
                break
        world.close()
        return Trajectory(task=task, segments=tuple(segments), stop_reason=stop_reason, sample=sample)

    def _observed(self, seen: FloatArray, width: int, turn: int) -> Segment:
        """What is seen, as a token; the first is the prompt."""
        numbers = np.asarray(seen, np.float32).reshape(-1)
        actor = "environment" if turn else "prompt"
        text = f"[{' '.join(f'{number:.3g}' for number in numbers)}]\n"
        return chains.condition_segment(numbers, width, actor=actor, turn=turn, text=text)

    def _width(self, sampler: Sampler, seen: FloatArray) -> int:
        """Numbers in a token's vector. Raises `UserError` for a model that is not conditioned on such observations."""
        count = int(np.asarray(seen).size)
        vectors = sampler.prompt(Task(key="", prompt=" ".join(["0"] * count))).vectors
        if vectors is None:
            raise UserError(f"the control rollout needs a flow, and role '{self.role}' writes text; take 'turns'")
        return int(vectors.shape[1])

    def _world(self) -> Any:
        """A fresh world."""
        if self.id == "reaching":
            return Reaching()
        try:
            import gymnasium
        except ModuleNotFoundError:
            raise UserError(
                f"the environment '{self.id}' is one of Gymnasium, which is not installed: pip install '.[gymnasium]'"
            ) from None
        settings: dict[str, Any] = dict(self.arguments)
        try:
            world: Any = gymnasium.make(self.id, **settings)
        except Exception as error:
            raise UserError(f"Gymnasium cannot make the environment '{self.id}': {error}") from None
        for name in ("observation_space", "action_space"):
            if not isinstance(getattr(world, name), gymnasium.spaces.Box):
                raise UserError(f"the {name} of '{self.id}' is {getattr(world, name)}; a flow needs a Box of numbers")
        return world
