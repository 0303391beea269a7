"""LaRe: the return of an episode, redistributed to its steps by a decoder of factors that code computes.

Source: Qu et al. 2024, arXiv:2412.11120, by its release: an encoder, code that a language model wrote and that was
checked by execution, maps a step to a few factors; a decoder maps factors to a reward, and is trained so that the
rewards of an episode give its return (`_decoder` has the forms of the loss). The rewards of the newest decoder replace
those of the episode, for another estimator. Sum and return are only fitted, never made equal.

    form: sum             (R - sum r)^2, the release's for several agents
    form: mean            (R / L - mean r)^2, the return divided by the number of steps
    form: rrd             the same over `draws` steps of an episode; with replacement where it has fewer
    form: rrd_unbiased    less a share of their variance, so that its expected value is that of `mean`

With a `writer`, the model in that role writes the encoder before the first step, from `about` and one step; without, it
is `encoder`; with neither, a step's own numbers are its factors (plain return decomposition). Observation and action
are the numbers in the texts before and of a turn; a batch without any number keeps its own rewards. Encoders run in the
sandbox, on the steps of the first rollouts.

Differs: the decoder has two layers of 64 with a rate of 3e-3 (5 of 64, or 3 of 256, and smaller rates); inputs are
standardized by the first batch; the buffer has the last 2,000 episodes of 15,000; it is updated in every step. The
weight of the unbiased form is never negative. Penalties in the reward are redistributed with it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._decoder import Form, Reals, Trainer, decoded, new_weights
from posttrain.engines import Sampler, Sampling, sampler_of
from posttrain.errors import UserError
from posttrain.grading.encoder_writing import ASK, write_encoder
from posttrain.grading.encoders import BadEncoder, encoded, first_function
from posttrain.sandbox import Tier, open_pool
from posttrain.signals import Signal
from posttrain.types import Batch, Credit, Group, Trajectory

BUFFER: Final = 2000
EPISODES: Final = 64
Step = tuple[list[float], list[float]]


@frozen
class LatentReward(Advantage):
    """Replaces the rewards of an episode by those of a decoder, and estimates credit from them."""

    advantage: Advantage
    """The estimator."""
    encoder: str | None = None
    """Code of the encoder, ``def factors(observation, action): ...``, or a file that ends in .py."""
    writer: str | None = None
    """Role of a model that writes the encoder."""
    about: str = "Reach the goal."
    """What the writer is given about the task and the layout of observations."""
    form: Form = "mean"
    """The loss of the decoder."""
    draws: Annotated[int, Field(ge=1, le=10_000)] = 64
    """K: steps of an episode in the randomized forms (64 in the release)."""
    updates: PositiveInt = 50
    """Updates of the decoder in each step (50 in the release, every ten iterations), of at most 64 episodes."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which encoders may run: see ``posttrain doctor``."""

    @model_validator(mode="after")
    def check_encoder(self) -> Self:
        """Refuse a text that is neither a file nor code with a function, and an encoder beside a writer."""
        if self.encoder is not None and self.writer is not None:
            raise PydanticCustomError(
                "encoder", "the writer writes the encoder: give one of them, and null for the other"
            )
        if self.encoder is not None and not self.encoder.endswith(".py"):
            try:
                first_function(self.encoder)
            except BadEncoder as fault:
                text = "the encoder is neither a file that ends in .py nor code: {fault}"
                raise PydanticCustomError("encoder", text, {"fault": str(fault)}) from None
        return self

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals of the estimator."""
        return self.advantage.needs

    @property
    def tags(self) -> frozenset[str]:
        """Tags of the estimator."""
        return self.advantage.tags

    @property
    def roles(self) -> frozenset[str]:
        """The writer, if there is one."""
        return frozenset() if self.writer is None else frozenset({self.writer})

    @property
    def prepares(self) -> bool:
        """Whether there is an encoder to write or to check."""
        return self.writer is not None or self.encoder is not None

    def start(self) -> State:
        """State before the first step: the given code, no decoder, no episode."""
        return {
            "code": self._given(),
            "trainer": None,
            "scale": None,
            "episodes": [],
            "returns": [],
            "inner": self.advantage.start(),
        }

    async def prepare(self, state: State, groups: Sequence[Group], samplers: Mapping[str, Sampler]) -> State:
        """Have the encoder written, and check it on real steps. Raises `UserError` for one that fails."""
        steps = [step for group in groups for t in group for step in steps_of(t)]
        pool = open_pool(self.weakest)
        try:
            if self.writer is None:
                encoded(state["code"], steps, pool)
                return state
            writer = sampler_of(self.writer, samplers, "the latent_reward advantage prompts")

            async def write(prompt: str, n: int, temperature: float) -> list[str]:
                return await writer.write(prompt, n, Sampling(temperature=temperature, max_tokens=2048))

            ask = ASK.format(about=self.about, observation=steps[0][0], action=steps[0][1])
            return {**state, "code": await write_encoder(write, ask, lambda code: encoded(code, steps, pool))}
        except BadEncoder as fault:
            raise UserError(f"the latent_reward advantage has no encoder of these steps: {fault}") from None

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Add the episodes to the buffer, train the decoder, and give its rewards to the estimator."""
        state = dict(state)
        episodes = [steps_of(t) for t in batch.trajectories]
        if not any(observation or action for steps in episodes for observation, action in steps):
            state["inner"], credit = self.advantage(state["inner"], batch)
            return state, credit
        factors = self._factors(state["code"], episodes)
        if state["scale"] is None:
            all_NF = np.concatenate([x for x in factors if len(x)])
            state["scale"] = [all_NF.mean(0).tolist(), (all_NF.std(0) + 1e-6).tolist()]
        mean_F, std_F = map(np.array, state["scale"])
        factors = [(x - mean_F) / std_F if len(x) else x for x in factors]
        trainer, loss = self._trained(state, factors, batch.return_N)
        rewards = [decoded(trainer.weights, x) if len(x) else np.zeros(0) for x in factors]
        gaps = [abs(r.sum() - whole) for r, whole in zip(rewards, batch.return_N, strict=True) if len(r)]
        metrics = {"latent/loss": loss, "latent/gap": float(np.mean(gaps))}
        batch = replace(batch, token_rewards=tuple(map(_redistributed, batch.trajectories, rewards)))
        state["inner"], credit = self.advantage(state["inner"], batch)
        return state, replace(credit, metrics={**credit.metrics, **metrics})

    def _trained(self, state: dict[str, Any], factors: Sequence[Reals], return_N: Reals) -> tuple[Trainer, float]:
        """The decoder after the updates of a step; changes the state in place."""
        fresh = [(x.tolist(), float(r)) for x, r in zip(factors, return_N, strict=True) if len(x)]
        fresh.sort()
        episodes = [*state["episodes"], *(x for x, _ in fresh)][-BUFFER:]
        returns = [*state["returns"], *(r for _, r in fresh)][-BUFFER:]
        rng = np.random.default_rng([len(episodes[0][0]), 0 if state["trainer"] is None else state["trainer"]["steps"]])
        packed = state["trainer"]
        trainer = Trainer(new_weights(len(episodes[0][0]), rng)) if packed is None else Trainer.of(packed)
        loss = 0.0
        for _ in range(self.updates):
            drawn = rng.choice(len(episodes), size=min(len(episodes), EPISODES), replace=False)
            chosen = [np.array(episodes[i], np.float64) for i in drawn]
            loss = trainer.update(self.form, chosen, np.array(returns)[drawn], self.draws, rng)
        state.update(episodes=episodes, returns=returns, trainer=trainer.packed())
        return trainer, loss

    def _factors(self, code: str | None, episodes: Sequence[Sequence[Step]]) -> list[Reals]:
        """For each episode, [L, F] the factors of its steps. Raises `UserError` where an encoder fails."""
        steps = [step for episode in episodes for step in episode]
        ends = np.cumsum([len(episode) for episode in episodes])[:-1]
        if code is not None:
            try:
                whole = encoded(code, steps, open_pool(self.weakest))
            except BadEncoder as fault:
                raise UserError(f"the encoder of latent_reward fails on steps of this batch: {fault}") from None
            return list(np.split(whole, ends))
        rows = [[*observation, *action] for observation, action in steps]
        widths = {len(row) for row in rows}
        if len(widths) > 1:
            raise UserError(
                f"steps have {min(widths)} to {max(widths)} numbers, and a decoder takes always as many; give an "
                "encoder that returns the same number of factors for every step"
            )
        return list(np.split(np.array(rows, np.float64).reshape(len(rows), -1), ends))

    def _given(self) -> str | None:
        """The code of the setting. Raises `UserError` for a file that is not there."""
        if self.encoder is None or not self.encoder.endswith(".py"):
            return self.encoder
        try:
            return Path(self.encoder).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"the encoder '{self.encoder}' cannot be read: {error}") from None


def steps_of(trajectory: Trajectory) -> list[Step]:
    """Observation and action of every turn, as the numbers in their texts."""
    steps, seen = [], ""
    for segment in trajectory.segments:
        if segment.trained and len(segment):
            steps.append((_numbers(seen), _numbers(segment.text)))
        else:
            seen = segment.text
    return steps


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.replace("[", " ").replace("]", " ").split() if _is_number(word)]


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _redistributed(trajectory: Trajectory, reward_L: Reals) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    """[T] the reward of each step at its last token."""
    lengths = [len(s) for s in trajectory.segments if s.trained and len(s)]
    reward_T = np.zeros(trajectory.num_trained, np.float32)
    reward_T[np.cumsum(lengths) - 1] = reward_L
    return reward_T
