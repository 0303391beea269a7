"""Tasks evolve: those that still teach are rewritten in chains, and the next tasks are mostly what was written.

Source: eva, Ye et al. 2024, arXiv:2411.00062 (ZIYU-DEEP/eva at d605e6f, evolve_prompt.py, reward_hf.py). The solver
trains on a set of tasks. By the rewards r of a task's rollouts it has an informativeness s, and with

    z = (s - min s) / (max s - min s) over the set        weight = z / sum z

`share` of the set's size is drawn by weight without replacement; each is rewritten `chain` times, one from the other,
and every one of them is kept. The next set has `old` of the size from the present set and the rest from those that
were written, both drawn uniformly, in a drawn order. `informativeness`:

    gap        max r - min r, the release's default         mean         mean r
    regret     max r - mean r                               hard         - mean r
    second     best r - second best r                       variance     of r, divided by n
    none       all the same: uniform

The task with the least informativeness has the weight 0, so that a task without spread is not drawn where another one
has some. Where all have the same, draws are uniform. A set that is used up is replaced; in a step with as many tasks as
the set has, every step is a round.

The model in `role` rewrites by `request`; without a role a rule does: a sum gets one more number or has one less, each
with probability 1/2, and its last number is drawn. Written tasks are in the state and in checkpoints, with their
lineage: parent, writer, step, depth. Those that are empty, repeated (a task of the data or an earlier one), held out,
without an answer where their parent has one, or longer than the policy's context are refused and counted; the chain
goes on from the last that was kept.

Differs: informativeness is that of the training rollouts, where the release samples anew from the trained solver; the
release has no check of what is written, and divides by zero where all are the same. Where fewer tasks have a weight
than are drawn, these are drawn (the release fails); where too few are written, the present set fills the next.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, Probe, State
from posttrain.components.curricula._draws import Places, Reals, generator, shuffled_epochs
from posttrain.components.curricula._success import scored_of
from posttrain.datasets.evolving import AND_ANSWER, REQUEST, born_task, fault, longer_or_shorter, question, read_reply
from posttrain.datasets.keys import problem
from posttrain.datasets.templates import fill
from posttrain.engines import Sampling, sampler_of
from posttrain.errors import UserError
from posttrain.types import Group, Message, Task, value_of

Informativeness = Literal["gap", "regret", "second", "variance", "mean", "hard", "none"]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Evolved(Curriculum):
    """Rewrites informative tasks, and trains on what was written."""

    informativeness: Informativeness = "gap"
    """What a task is drawn by."""
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    """Tasks of a set that are rewritten, as a share of its size, rounded down."""
    chain: Annotated[PositiveInt, Field(le=64)] = 4
    """Rewrites of each, one from the other."""
    old: Share = 0.2
    """Share of the next set that is from the present one."""
    role: str | None = None
    """The model that rewrites; None rewrites sums by a rule."""
    request: str = REQUEST
    """Its prompt. Placeholders: question, answer."""
    sampling: Sampling = Sampling(temperature=0.88, max_tokens=666)
    """How it writes."""

    @property
    def roles(self) -> frozenset[str]:
        """The model that rewrites."""
        return frozenset() if self.role is None else frozenset({self.role})

    @property
    def needs_several(self) -> bool:
        """Whether tasks are drawn by the spread of their rewards."""
        return self.informativeness in ("gap", "regret", "second", "variance")

    def check(self, tasks: Sequence[Task], count: int) -> None:
        """The rule needs sums, and a set must be large enough that one task of it is rewritten."""
        if int(self.share * len(tasks)) < 1:
            raise UserError(
                f"curriculum.share={self.share:g} of {len(tasks)} tasks is none, so that nothing would be rewritten; "
                "give more tasks or a larger share"
            )
        if self.role is None and not any(longer_or_shorter(task, 0.0, 0.0) for task in tasks):
            raise UserError(
                "without a model the curriculum 'evolved' rewrites sums only, which have a column 'expression'; name "
                "the role of the model that rewrites as curriculum.role, and give models.ROLE.source"
            )

    def start(self) -> State:
        """State before the first step: the set is the pool."""
        return {"taken": 0, "round": 0, "set": [], "born": [], "values": {}, "refused": {}, "depth": 0.0}

    async def look(
        self, state: State, pool: Sequence[Task], probe: Probe, count: int, *, seed: int, step: int, refill: int = 0
    ) -> State:
        """Write the next set where the present one is used up."""
        size = len(state["set"]) or len(pool)
        if state["taken"] < size or not state["values"]:
            return state
        everything = _everything(state, pool)
        places = list(state["set"]) or list(range(len(pool)))
        rng = generator(seed, step, refill, 0x65)
        wanted = int(self.share * size)
        drawn = drawn_by(weights([self._value(state, everything[i]) for i in places]), wanted, rng)
        writer = _Writer(role=self.role, request=self.request, sampling=self.sampling)
        writing = _Writing(writer, pool, state, probe, step)
        for place in drawn.tolist():
            await writing.chain(everything[places[place]], self.chain, rng)
        fresh = list(range(len(everything), len(everything) + len(writing.made)))
        keep = round(self.old * size)
        kept = rng.choice(places, size=min(keep, size), replace=False).tolist()
        new = rng.choice(fresh, size=min(size - len(kept), len(fresh)), replace=False).tolist() if fresh else []
        rest = [place for place in places if place not in set(kept)]
        missing = size - len(kept) - len(new)
        kept += rng.choice(rest, size=min(missing, len(rest)), replace=False).tolist() if missing else []
        following = rng.permutation([*kept, *new]).tolist()
        return {
            **state,
            "taken": 0,
            "round": state["round"] + 1,
            "set": following,
            "born": [*state["born"], *writing.made],
            "values": {},
            "refused": dict(writing.refused),
            "depth": float(np.mean([writing.depth(i) for i in following])),
            "without_weight": wanted - len(drawn),
        }

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Take the next tasks of the set, in a drawn order; a set that is used up begins again."""
        places: Sequence[int] = state["set"] or range(len(pool))
        order = shuffled_epochs(len(places), state["taken"], count, (seed, 0x6576, state["round"]))
        picks = [_pick(_at(places[i], state, pool)) for i in order.tolist()]
        return {**state, "taken": state["taken"] + count}, picks

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Keep the rewards of each task by its informativeness. Rollouts whose scoring failed do not count."""
        values = dict(state["values"])
        for key, trajectories in scored_of(groups).items():
            values[key] = informative([value_of(t) for t in trajectories], self.informativeness)
        return {**state, "values": values}

    def report(self, state: State) -> Mapping[str, float]:
        """The round, what was written and refused, and the mean depth of the present set.

        ``without_weight`` counts the tasks by which fewer than the share were rewritten, since no others had a weight.
        """
        found = {
            "round": float(state["round"]),
            "born": float(len(state["born"])),
            "depth": float(state["depth"]),
            "informativeness": float(np.mean(list(state["values"].values()))) if state["values"] else 0.0,
        }
        if missing := state.get("without_weight"):
            found["without_weight"] = float(missing)
        return found | {f"refused/{reason}": float(number) for reason, number in state["refused"].items()}

    def _value(self, state: State, task: Task) -> float:
        """The informativeness of a task of the set; the least that there is where it could not be scored."""
        known = state["values"]
        return float(known.get(task.key, min(known.values())))


@dataclass(frozen=True, kw_only=True)
class _Writer:
    """The model that rewrites, None for the rule, and how it is asked."""

    role: str | None
    request: str
    sampling: Sampling


class _Writing:
    """What is written for one round."""

    def __init__(self, writer: _Writer, pool: Sequence[Task], state: State, probe: Probe, step: int) -> None:
        self.writer, self.probe, self.step = writer, probe, step
        self.made: list[dict[str, Any]] = []
        self.refused: Counter[str] = Counter()
        self.before = _everything(state, pool)
        self.known = set(map(problem, self.before))
        self.calls = 0

    async def chain(self, task: Task, count: int, rng: np.random.Generator) -> None:
        """Rewrite a task, and what was written, `count` times."""
        for _ in range(count):
            made = await self._rewritten(task, rng)
            reason = fault(made, task, self.known, self.probe.held_out)
            born = None if reason else born_task({**made, "lineage": self._lineage(task)})
            if born is not None and self._too_long(born):
                reason = "too long"
            if born is None or reason:
                self.refused[reason] += 1
                continue
            self.made.append({**made, "key": born.key, "lineage": born.fields["lineage"]})
            self.known.add(problem(born))
            task = born

    async def _rewritten(self, task: Task, rng: np.random.Generator) -> Mapping[str, Any]:
        role = self.writer.role
        if role is None:
            return longer_or_shorter(task, float(rng.random()), float(rng.random()))
        sampler = sampler_of(role, self.probe.samplers, "the evolved curriculum rewrites by")
        self.calls += 1
        asked = {"question": question(task), "answer": AND_ANSWER if task.answer is not None else ""}
        prompt = (Message(role="user", content=fill(self.writer.request, asked)),)
        [reply] = await sampler.bind("rewrite", task.key, self.calls).write(prompt, 1, self.writer.sampling)
        return read_reply(task, reply)

    def depth(self, place: int) -> int:
        """The depth of a task, of those before and those that were written."""
        made = place - len(self.before)
        return int(self.made[made]["lineage"]["depth"]) if made >= 0 else depth_of(self.before[place])

    def _too_long(self, task: Task) -> bool:
        """Whether the policy has no room for an answer."""
        policy = self.probe.samplers.get("policy")
        return policy is not None and len(policy.prompt(task)) >= policy.context

    def _lineage(self, parent: Task) -> dict[str, Any]:
        return {
            "parent": parent.key,
            "writer": self.writer.role or "rule",
            "step": self.step,
            "depth": depth_of(parent) + 1,
        }


def informative(rewards: Sequence[float], how: Informativeness) -> float:
    """The informativeness of a task by the rewards of its rollouts, at least one."""
    r = sorted(rewards, reverse=True)
    mean = sum(r) / len(r)
    return {
        "gap": r[0] - r[-1],
        "regret": r[0] - mean,
        "second": r[0] - r[min(1, len(r) - 1)],
        "variance": sum((x - mean) ** 2 for x in r) / len(r),
        "mean": mean,
        "hard": -mean,
        "none": 0.0,
    }[how]


def weights(values: Sequence[float]) -> Reals:
    """[P] probabilities of being drawn: min-max of the values over their sum; equal where all are the same."""
    s_P = np.asarray(values, np.float64)
    z_P = s_P - s_P.min()
    return z_P / z_P.sum() if z_P.sum() > 0.0 else np.full(len(s_P), 1.0 / len(s_P))


def drawn_by(weight_P: Reals, count: int, rng: np.random.Generator) -> Places:
    """Places that are drawn by weight without replacement; fewer where fewer have a weight."""
    most = int((weight_P > 0.0).sum())
    return np.asarray(rng.choice(len(weight_P), size=min(count, most), replace=False, p=weight_P), np.int64)


def depth_of(task: Task) -> int:
    """The number of tasks between a born task and one of the data, that one included; 0 for tasks of the data."""
    return int(task.fields.get("lineage", {}).get("depth", 0)) if "lineage" in task.fields else 0


def _everything(state: State, pool: Sequence[Task]) -> list[Task]:
    """The tasks of the pool, then those that were written, in order."""
    return [*pool, *map(born_task, state["born"])]


def _at(place: int, state: State, pool: Sequence[Task]) -> Task:
    """A task of the pool, or one that was written."""
    return pool[place] if place < len(pool) else born_task(state["born"][place - len(pool)])


def _pick(task: Task) -> Pick:
    depth = depth_of(task)
    return Pick(task=task, weight=float(depth), reason="born" if depth else "data")
