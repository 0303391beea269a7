r"""Tasks in the order of the angles between a model's hidden states, in a window that moves as the policy improves.

Source: GAIN-RL, arXiv:2506.02281 (wangqinsi1/GAINRL at 20279ca). The states are the inputs of the last MLP's
up-projection. Before the first step each prompt has the score

    C_intra + weight C_inter

C_intra is the mean cosine of the question's tokens with themselves and the question's tokens before them, C_inter that
of the question's tokens with the context before it. Tasks are sorted by it, the highest first. `subset` of them are
drawn without replacement, the one at rank i with a probability proportional to exp(-((i - mu) / sigma)^2 / 2), and
taken in the order of their ranks. When they are used up,

    mu <- mu + clamp(n tanh(alpha (acc - beta)) + n tanh(gamma ang), 0, most)

with acc the mean success of their rollouts, and ang the mean over rollouts of the mean of the cosine matrix of prompt
and completion over its lower triangle, diagonal and one superdiagonal. mu begins at 0 and never falls.

The tokens that all prompts begin with are the context, those that all end with belong to neither. sigma, n and the
largest move are shares of the number of tasks, since the paper's are of some thousands.

Differs: alpha 2, beta .5 and gamma .5 are those of the paper, by a digest (the release has 2 for both). The release
cuts the cosine matrix at fixed places and its rows twice; its port to another trainer normalizes over the wrong axis,
feeds acc / 2 and uses the mean of the epoch before. Here ang is by the weights after the update of the last step. Draws
are made from logarithms, so that a mean far beyond the last task still draws the last ones.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, Probe, State
from posttrain.components.curricula._draws import Places, Reals, generator, shuffled_epochs
from posttrain.components.curricula._success import Success, scored_of, success_of
from posttrain.types import Group, IntArray, Task

States = NDArray[np.floating[Any]]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Angles(Curriculum):
    """Draws around a rank that moves; ranks are by the angles of hidden states."""

    weight: float = 1.0
    """Of C_inter: 1 in the paper, 8 in the released script."""
    spread: PositiveFloat = 0.13
    """sigma as a share of the number of tasks; the release has 1,000 ranks, of 7,473 tasks in GSM8K."""
    pace: Share = 0.067
    """n, the most that either term moves mu by, as a share of the number of tasks; the release has 500 ranks."""
    alpha: PositiveFloat = 2.0
    """Slope of the term of success."""
    beta: Share = 0.5
    """Success rate at which that term is 0."""
    gamma: PositiveFloat = 0.5
    """Slope of the term of angles."""
    subset: PositiveInt | None = None
    """Tasks that are drawn at a time; None draws those of a step."""
    success: Success = "solved"
    """What acc is the mean of, within [0, 1]."""

    def start(self) -> State:
        """State before the first step: nothing measured."""
        return {"mu": 0.0, "left": [], "success": [], "sequences": []}

    async def look(
        self, state: State, pool: Sequence[Task], probe: Probe, count: int, *, seed: int, step: int, refill: int = 0
    ) -> State:
        """Rank all tasks before the first step; move mu where a subset was used up, and draw the next one."""
        if "order" not in state:
            prompts = [probe.samplers["policy"].prompt(task).token_ids for task in pool]
            score_P = scores(await probe.mlp_inputs("policy", prompts), prompts, self.weight)
            state = {**state, "order": np.argsort(-score_P, kind="stable"), "score": score_P}
        left = list(state["left"])
        if not left and state["success"]:
            matrices = await probe.mlp_inputs("policy", state["sequences"])
            angle = float(np.mean([mean_cosine(own, 1) for own in matrices]))
            acc = float(np.mean(state["success"]))
            moved = state["mu"] + self.move(acc, angle, len(pool))
            state = {**state, "mu": moved, "angle": angle, "acc": acc, "success": [], "sequences": []}
        if not left:
            size = min(max(self.subset or count, count), len(pool))
            weight_P = log_weights(len(pool), state["mu"], self.spread * len(pool))
            left = without_replacement(weight_P, size, generator(seed, step, refill, 0x47)).tolist()
        return {**state, "left": left}

    def move(self, acc: float, angle: float, size: int) -> float:
        """By how many ranks mu moves."""
        n = self.pace * size
        moved = n * float(np.tanh(self.alpha * (acc - self.beta))) + n * float(np.tanh(self.gamma * angle))
        return max(0.0, min(moved, 2.0 * n))

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Take the next of the subset, in the order of their ranks."""
        left = list(state["left"])
        if "order" not in state or not left:
            order = shuffled_epochs(len(pool), step * count, count, (seed, 0x416E, refill))
            return state, [Pick(task=pool[i], reason="uniform") for i in order.tolist()]
        taken = [left[i % len(left)] for i in range(count)]
        picks = [Pick(task=pool[int(state["order"][rank])], weight=float(rank), reason="angle") for rank in taken]
        return {**state, "left": left[count:]}, picks

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Keep success and tokens of the rollouts until the subset is used up."""
        success, sequences = list(state["success"]), list(state["sequences"])
        for trajectories in scored_of(groups).values():
            success.append(success_of(trajectories, self.success))
            sequences += [np.concatenate([own.token_ids for own in t.segments]) for t in trajectories]
        return {**state, "success": success, "sequences": sequences}

    def report(self, state: State) -> Mapping[str, float]:
        """The center of the window, and what moved it."""
        found = {"mu": float(state["mu"])}
        return found | {name: float(state[name]) for name in ("angle", "acc") if name in state}


def scores(states: Sequence[States], prompts: Sequence[IntArray], weight: float) -> Reals:
    """[P] C_intra + weight C_inter of every prompt."""
    before, after = shared(prompts), shared([ids[::-1] for ids in prompts])
    found = []
    for own, ids in zip(states, prompts, strict=True):
        first = min(before, len(ids) - 1)
        question_QD, context_CD = own[first : max(len(ids) - after, first + 1)], own[:first]
        inter = float((unit(question_QD) @ unit(context_CD).T).mean()) if len(context_CD) else 0.0
        found.append(mean_cosine(question_QD, 0) + weight * inter)
    return np.array(found)


def shared(sequences: Sequence[IntArray]) -> int:
    """The number of tokens that all sequences begin with; 0 for a single one."""
    if len(sequences) < 2:
        return 0
    shortest = min(map(len, sequences))
    same_L = np.all([ids[:shortest] == sequences[0][:shortest] for ids in sequences], axis=0)
    return shortest if same_L.all() else int(np.argmin(same_L))


def mean_cosine(states_LD: States, above: int) -> float:
    """Mean of the cosine matrix over its lower triangle, diagonal and `above` diagonals over it."""
    unit_LD = unit(states_LD)
    inside_LL = np.tri(len(unit_LD), k=above, dtype=bool)
    return float((unit_LD @ unit_LD.T)[inside_LL].mean())


def unit(states_LD: States) -> Reals:
    """The states, each divided by its norm."""
    own_LD = np.asarray(states_LD, np.float64)
    return np.asarray(own_LD / np.maximum(np.linalg.norm(own_LD, axis=1, keepdims=True), 1e-12), np.float64)


def log_weights(size: int, mu: float, sigma: float) -> Reals:
    """[P] logarithms of the Gaussian's weights."""
    return np.asarray(-0.5 * ((np.arange(size) - mu) / sigma) ** 2, np.float64)


def without_replacement(log_weight_P: Reals, count: int, rng: np.random.Generator) -> Places:
    """Ranks that are drawn by weight without replacement, rising: the largest of the logarithms with Gumbel noise."""
    noisy_P = log_weight_P + rng.gumbel(size=len(log_weight_P))
    return np.sort(np.argsort(-noisy_P, kind="stable")[:count]).astype(np.int64)
