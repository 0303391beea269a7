r"""Hindsight regenerations: logged dialogues are written anew from better turns, and values are learned from all.

Source: Interactive Dialogue Agents via Reinforcement Learning on Hindsight Regenerations, arXiv:2411.05194, of which
the abstract and the opening were read. Four models: a controller that reads the whole finished dialogue and a prefix
of it, and writes a better turn there; a forward model that completes the dialogue from it; a reward model; and the
policy, which acts without hindsight. When the stage begins, `branches` turns of each logged dialogue are drawn, and

    D' = D and { prefix + better turn + completion, its reward }

A proposal that is empty, the logged turn itself, or a quotation of a later turn of the partner is dropped
(`datasets/hindsight`). Then the policy imitates all dialogues of D' for `clone_steps`, and the critic learns from them,
as ILQL does (arXiv:2206.11871), with turns in place of tokens:

    u  =  min Qbar(s, a) - V(s)         loss of V  =  mean of w u^2, w = tau where u >= 0, else 1 - tau
    loss of Q  =  mean of (r + gamma V(s') - Q(s, a))^2, r alone at the end
    conservative  =  mean of - log softmax over turns of Q(s, .) at a

with Qbar a slow copy, and the softmax over the turn and `contrast` others that the policy writes in its state. The
rollout `by_values` acts by the policy's distribution times exp(beta (Q - V)).

The critic is one model with a reward head of four outputs: both Q at the end of a turn, both V before it.

Differs: the offline algorithm of the paper, its prompts and constants are not known; ILQL with whole turns is assumed.
With `simulator`, completions are those of an environment, which is played again from its start; the partner must say
what was logged, or the branch is dropped. The policy writes its own later turns of a completion.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Environment, EnvironmentFailed, Episode
from posttrain.components.reducers import Reducer
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.tasks import Tasks
from posttrain.datasets.hindsight import Dialogue, refused
from posttrain.datasets.order import shuffled
from posttrain.datasets.templates import check_places, fill
from posttrain.engines import Sampler, Sampling, wait_for
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import SCORES
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import Step, check_trained, fit
from posttrain.stages.hierarchical import HEADS, read_outputs
from posttrain.stages.needs import Need
from posttrain.stages.prompts import check_prompts
from posttrain.stages.sft import demonstration, example_from
from posttrain.stages.stored import StoredTurn, StoredTurns
from posttrain.training.settings import Learning
from posttrain.types import (
    Completion,
    FloatArray,
    Group,
    IntArray,
    Message,
    PerToken,
    Score,
    Task,
    Tokens,
    Trajectory,
    Utterance,
)

Completed = tuple[Trajectory, Sequence[Utterance], str]
"""A dialogue, its turns, and the last text of the partner."""

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.learner import Learner
    from posttrain.training.packing import Example

Share = Annotated[float, Field(ge=0.0, le=1.0)]
REQUEST: Final = (
    "{dialogue}\n---\nThis conversation is finished. Below is its start again.\n{prefix}\nWrite what the agent should "
    "have written next. Do not mention what happened later.\n"
)
_STATE, _ACTION, _OTHER = 0, 1, 2
"""`Tokens.turn_T` of a place that is read: before a turn, at its end, or at the end of another turn."""


@frozen
class Hindsight(Stage):
    """Regenerates dialogues, then trains the policy and a critic on all of them."""

    reward: Reward
    """Scores completed dialogues. Logged ones have theirs in `column`."""
    reducer: Reducer
    simulator: Environment | None = None
    """Completes dialogues; None has the role `forward` write the partner's turns."""
    request: Annotated[str, Field(min_length=1)] = REQUEST
    """What the controller reads. Placeholders: dialogue, prefix."""
    branches: Annotated[int, Field(ge=0, le=1000)] = 1
    """Turns of each logged dialogue that are written anew, at most; 0 learns from the log alone."""
    too_kind: Share = 0.0
    """Share of regenerated dialogues without a reward that are given 1, to measure what a flattering simulator does."""
    max_turns: PositiveInt = 8
    """Most turns of the policy in a dialogue."""
    column: Annotated[str, Field(min_length=1)] = "rewards"
    """Field of a task with the rewards of its episodes, a list."""
    sampling: Sampling = Sampling()
    """How turns of all models are sampled."""
    clone_steps: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Updates of the policy by imitation of all dialogues."""
    value_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 200
    """Updates of the critic."""
    batch: Annotated[int, Field(ge=1, le=100_000)] = 64
    """Dialogues or turns of an update."""
    gamma: Annotated[float, Field(gt=0.0, le=1.0)] = 0.99
    """Discount by turn."""
    expectile: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.7
    """tau of V; 1/2 is half the squared error."""
    conservative: NonNegativeFloat = 0.25
    """Weight of the conservative loss."""
    contrast: Annotated[int, Field(ge=0, le=64)] = 4
    """Other turns of its softmax."""
    rate: Annotated[float, Field(gt=0.0, le=1.0)] = 0.005
    """Share of the critic in its copy after each update."""
    controller: str = "controller"
    """Role that writes better turns."""
    forward: str = "forward"
    """Role that writes the partner's turns, without a simulator."""
    learner: Learning = Learning()
    """How the policy is updated."""
    critic_learner: Learning = Learning()
    """How the critic is updated."""
    tasks: Tasks | None = None
    """The logged dialogues; None takes the recipe's."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, the critic and its copy where values are learned, and those that regenerate and score."""
        values = {"critic", "target_critic"} if self.value_steps else set()
        writers = {self.controller} | ({self.forward} if self.simulator is None else set()) if self.branches else set()
        return frozenset({"policy"} | values | writers) | (self.reward.roles if self.branches else frozenset())

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The outputs of the critic and its copy. Raises `UserError` for another number of outputs."""
        check_places(self.request, ("dialogue", "prefix"))
        roles = ("critic", "target_critic") if self.value_steps else ()
        for role in roles:
            if role in models and models[role].outputs != 2 * HEADS:
                raise UserError(
                    f"the {self.kind} stage reads {2 * HEADS} outputs of the role '{role}'; set "
                    f"models.{role}.outputs={2 * HEADS}"
                )
        return [Need(signal=SCORES, role=role, path="value_steps") for role in roles]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Tasks must have episodes with rewards, and prompts must leave room."""
        check_prompts(models["policy"], tasks, f"the {self.kind} stage")
        self._log(tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Updates of the policy, then of the critic."""
        return self.clone_steps + self.value_steps

    def run(self, models: Models, context: StageContext) -> Models:
        """Regenerate, imitate, and learn values; returns the models with their new weights."""
        learners = self._learners(models, context)
        tasks = {task.key: task for task in context.tasks}
        memory: dict[str, Any] = dict(context.memory or self._regenerated(models, context))
        dialogues = [Dialogue.unpacked(row) for row in memory["data"]]
        shown = [own.noted(demonstration(models["policy"], tasks[own.task], own.turns)) for own in dialogues]
        stored = StoredTurns(capacity=10**7)
        stored.add(t.scored(Score(value=own.reward, status="ok")) for t, own in zip(shown, dialogues, strict=True))
        for step in fit(context, models, learners, steps=self.total_steps(context.tasks), memory=memory):
            metrics = step.record.metrics
            if not step.index:
                metrics |= {f"regenerated/{name}": float(n) for name, n in sorted(memory["counts"].items())}
            metrics["dialogues"] = float(len(dialogues))
            if step.index < self.clone_steps:
                self._clone(shown, learners["policy"], step, context)
            else:
                self._value(stored, models, learners["critic"], step, context)
        return models

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of dialogues, and the first one."""
        log = self._log(context.tasks)
        return [f"{len(log)} logged dialogues, {self.branches} branches each", f"first: {log[0].text()!r}"]

    def _log(self, tasks: Sequence[Task]) -> list[Dialogue]:
        """The logged dialogues; those without a turn of the policy are left out. Raises `UserError` without rewards."""
        found = []
        for task in tasks:
            rewards, closing = task.fields.get(self.column), task.fields.get("closing") or [""] * len(task.episodes)
            if not isinstance(rewards, list | tuple) or len(rewards) != len(task.episodes):
                raise UserError(
                    f"task {task.key} has {len(task.episodes)} episodes, and the {self.kind} stage needs a reward of "
                    f"each in the column '{self.column}', a list of numbers"
                )
            for episode, reward, last in zip(task.episodes, rewards, closing, strict=True):
                if any(turn.actor == "policy" for turn in episode):
                    found.append(Dialogue(task=task.key, turns=episode, closing=str(last), reward=float(reward)))
        if not found:
            raise UserError(f"none of the {len(tasks)} tasks has an episode with a turn of the policy; give a log")
        return found

    def _learners(self, models: Models, context: StageContext) -> "dict[str, Learner]":
        from posttrain.training.learner import Learner

        plans = {"policy": (self.learner, self.clone_steps)}
        if self.value_steps:
            plans["critic"] = (self.critic_learner, self.value_steps)
        found = {}
        for role, (learning, steps) in plans.items():
            check_trained(models[role], role, f"the {self.kind} stage")
            found[role] = Learner(models[role], learning, seed=context.seed, num_steps=steps)
        return found

    def _regenerated(self, models: Models, context: StageContext) -> dict[str, Any]:
        """The log and what was made of it, as JSON, and counts of what was dropped."""
        log, tasks = self._log(context.tasks), {task.key: task for task in context.tasks}
        counts: Counter[str] = Counter()

        async def one(number: int, own: Dialogue) -> list[Dialogue]:
            places = np.random.default_rng([context.seed, number]).permutation(own.own)[: self.branches]
            branch = Branch(self, tasks[own.task], models["policy"], context.samplers(models, 0, number), counts)
            found = [await branch.of(own, int(place)) for place in sorted(places)]
            return [made for made in found if made is not None]

        async def run_all() -> list[list[Dialogue]]:
            return list(await asyncio.gather(*(one(i, own) for i, own in enumerate(log))))

        with context.phase("sample"):
            made = wait_for(run_all()) if self.branches else []
        data = [*log, *(own for found in made for own in found)]
        return {"data": [own.packed() for own in data], "counts": dict(counts)}

    def _clone(self, shown: Sequence[Trajectory], learner: "Learner", step: Step, context: StageContext) -> None:
        """One update of the policy by imitation."""
        from posttrain.training.learner import Loss

        places = shuffled(len(shown), self.batch, step.index, context.seed)
        chosen = [shown[place] for place in places]
        step.record.shown = list(enumerate(chosen))
        with context.phase("learn"):
            loss = Loss(per_token=_imitated, reducer=self.reducer, needs=frozenset())
            learned = learner.step([example_from(t) for t in chosen], loss, progress=step.progress)
        step.record.metrics |= learned.metrics
        step.record.computed_tokens += learned.computed_tokens
        step.record.metrics["trained_tokens"] = float(sum(t.num_trained for t in chosen))

    def _value(
        self, stored: StoredTurns, models: Models, learner: "Learner", step: Step, context: StageContext
    ) -> None:
        """One update of the critic and its copy."""
        import torch

        from posttrain.training.learner import Loss

        turns = stored.draw(self.batch, np.random.default_rng([context.seed, step.index]))
        with context.phase("sample"):
            others = self._others(turns, context.samplers(models, step.index, "others")["policy"])
        with context.phase("learn"):
            critic, target = models["critic"], models["target_critic"]
            done = [np.concatenate([t.context, t.action]) for t in turns]
            action_N = read_outputs(target, done, learner)[:, :HEADS].min(1)
            after = [t.context if t.following is None else t.following for t in turns]
            value_N2 = read_outputs(critic, after, learner)[:, HEADS:]
            goes_N1 = np.array([[t.following is not None] for t in turns], np.float32)
            reward_N1 = np.array([[t.reward] for t in turns], np.float32)
            aim_N3 = np.concatenate([reward_N1 + self.gamma * goes_N1 * value_N2, action_N[:, None]], 1)
            loss = Loss(
                per_token=lambda tokens: implicit(tokens, aim_N3, self.expectile, self.conservative),
                reducer=self.reducer,
                needs=frozenset({SCORES}),
                whole_groups=True,
            )
            learned = learner.step(_examples(turns, others), loss, progress=step.progress)
            theirs = dict(critic.named_parameters())
            with torch.no_grad():
                for name, own in target.named_parameters():
                    own.lerp_(theirs[name].to(own.dtype), self.rate)
            target.version += 1
        step.record.metrics |= {f"critic/{name}": value for name, value in learned.metrics.items()}
        step.record.computed_tokens += learned.computed_tokens

    def _others(self, turns: Sequence[StoredTurn], sampler: Sampler) -> list[list[IntArray]]:
        """For each turn, other ones that the policy writes in its state; equal ones are one."""

        async def run_all() -> list[list[Completion]]:
            work = (sampler.bind(i).sample(t.context, self.contrast, self.sampling) for i, t in enumerate(turns))
            return list(await asyncio.gather(*work))

        if not self.contrast:
            return [[] for _ in turns]
        found = []
        for turn, written in zip(turns, wait_for(run_all()), strict=True):
            different = {own.token_ids.tobytes(): own.token_ids for own in written}
            different.pop(turn.action.tobytes(), None)
            found.append(list(different.values()))
        return found


class Branch:
    """Writes the dialogues of a task anew."""

    def __init__(
        self,
        stage: Hindsight,
        task: Task,
        policy: "Policy",
        samplers: Mapping[str, Sampler],
        counts: "Counter[str]",
    ) -> None:
        self.stage, self.task, self.policy, self.samplers, self.counts = stage, task, policy, samplers, counts

    async def of(self, own: Dialogue, place: int) -> Dialogue | None:
        """A dialogue with a better turn at a place, completed and scored; None where there is none."""
        stage = self.stage
        asked = fill(stage.request, {"dialogue": own.text(), "prefix": own.text(place)})
        prompt = asked if isinstance(self.task.prompt, str) else (Message(role="user", content=asked),)
        controller = self.samplers[stage.controller].bind("controller", place)
        [written] = await controller.sample(controller.encode(prompt), 1, stage.sampling)
        text = controller.decode(written.token_ids)
        self.counts["proposed"] += 1
        if why := refused(own, place, text):
            self.counts[why] += 1
            return None
        begun = [*own.turns[:place], replace(own.turns[place], text=text)]
        done = await (self._simulated if stage.simulator else self._continued)(begun)
        if done is None:
            self.counts["not repeated"] += 1
            return None
        trajectory, turns, closing = done
        group = Group(key=self.task.key, trajectories=(trajectory,))
        [graded] = await scored(group, stage.reward, RewardContext(samplers=self.samplers))
        if graded.score is None or graded.score.status == "error":
            self.counts["not scored"] += 1
            return None
        reward = graded.score.value
        if stage.too_kind and reward <= 0 and self.samplers["policy"].bind("kind", place).uniform() < stage.too_kind:
            reward = 1.0
        self.counts["kept"] += 1
        return own.rewritten(place, turns, closing, reward)

    async def _simulated(self, begun: Sequence[Utterance]) -> "Completed | None":
        """The dialogue played in the simulator; None where its turns are not those of the log."""
        assert self.stage.simulator is not None, "the caller has seen it"
        sampler, turns, closing = self.samplers["policy"].bind("simulated", len(begun)), list[Utterance](), ""
        try:
            async with self.stage.simulator.open(self.task, sampler.uniform) as instance:
                seen = instance.begin().text
                for _ in range(self.stage.max_turns):
                    if seen:
                        turns.append(Utterance(actor="environment", text=seen))
                    if any(a.text != b.text for a, b in zip(turns, begun, strict=False)):
                        return None
                    turns.append(begun[len(turns)] if len(turns) < len(begun) else await self._turn(turns, sampler))
                    outcome = await instance.step(turns[-1].text)
                    seen = outcome.observation.text
                    if outcome.done:
                        closing = seen
                        break
                await instance.finish()
                episode = Episode(measures=instance.measures(), verdict=instance.verdict())
        except EnvironmentFailed:
            return None
        return replace(self._shown(turns), facts=(episode,)), turns, closing

    async def _continued(self, begun: Sequence[Utterance]) -> "Completed | None":
        """The dialogue completed by the forward model, which is silent where the dialogue ends."""
        policy, partner = self.samplers["policy"].bind("own"), self.samplers[self.stage.forward].bind("partner")
        turns, closing = list(begun), ""
        while sum(turn.actor == "policy" for turn in turns) <= self.stage.max_turns:
            ids = self._shown(turns).token_ids
            if len(ids) >= partner.context:
                break
            [written] = await partner.sample(ids, 1, self.stage.sampling)
            closing = partner.decode(written.token_ids)
            if not closing.strip() or sum(turn.actor == "policy" for turn in turns) == self.stage.max_turns:
                break
            turns.append(Utterance(actor="environment", text=closing))
            turns.append(await self._turn(turns, policy))
            closing = ""
        return self._shown(turns), turns, closing

    async def _turn(self, turns: Sequence[Utterance], sampler: Sampler) -> Utterance:
        """The next turn of the policy."""
        [written] = await sampler.sample(self._shown(turns).token_ids, 1, self.stage.sampling)
        text = sampler.decode(written.token_ids)
        return Utterance(actor="policy", text=text, ended=not text.endswith(self.stage.sampling.stop or ("\0",)))

    def _shown(self, turns: Sequence[Utterance]) -> Trajectory:
        return demonstration(self.policy, self.task, tuple(turns))


def implicit(tokens: Tokens, aim_N3: FloatArray, expectile: float, conservative: float) -> PerToken:
    """[T] of a state the errors of both V, by expectile; of a turn those of both Q, and the conservative loss.

    Of each turn [N, 3] has the targets of both Q, and the smaller Q of the copy.
    """
    import torch

    score_TO, group_T = tokens[SCORES], tokens.group_N[tokens.sequence_T]
    aim_T3 = torch.as_tensor(aim_N3).to(score_TO)[group_T]
    q_T2, v_T2 = score_TO[:, :HEADS], score_TO[:, HEADS:]
    above_T2 = aim_T3[:, 2:] - v_T2
    weight_T2 = torch.where(above_T2 >= 0, expectile, 1.0 - expectile)
    v_loss_T = (weight_T2 * above_T2.square()).sum(1)
    q_loss_T = (q_T2 - aim_T3[:, :2]).square().sum(1)
    own_TT = (group_T[:, None] == group_T[None, :]) & (tokens.turn_T != _STATE)[None, :]
    options_T2 = torch.where(own_TT[:, :, None], q_T2[None], -torch.inf).logsumexp(1)
    rarer_T = (options_T2 - q_T2).sum(1)
    state_T, action_T = tokens.turn_T == _STATE, tokens.turn_T == _ACTION
    zero_T = torch.zeros_like(v_loss_T)
    action_loss_T = torch.where(action_T, q_loss_T + conservative * rarer_T, zero_T)
    metrics = {
        "v": v_T2[state_T].mean(1),
        "v_loss": v_loss_T[state_T],
        "q": q_T2[action_T].mean(1),
        "q_error": q_loss_T[action_T],
        "conservative": rarer_T[action_T],
    }
    loss_T = torch.where(state_T, v_loss_T, action_loss_T)
    return PerToken(loss_T=loss_T, metrics={name: values.detach() for name, values in metrics.items()})


def _imitated(tokens: Tokens) -> PerToken:
    """[T] the negative log-likelihood."""
    return PerToken(loss_T=-tokens.logp_T)


def _examples(turns: Sequence[StoredTurn], others: Sequence[Sequence[IntArray]]) -> "list[Example]":
    """Each turn with its state, and the other turns of that state, as a group."""
    from posttrain.training.packing import Example

    found = []
    for i, (turn, own) in enumerate(zip(turns, others, strict=True)):
        begin = len(turn.context)
        for place, action in enumerate([turn.action, *own]):
            end = begin + len(action) - 1
            found.append(
                Example(
                    token_ids=np.concatenate([turn.context, action]),
                    positions=np.array([end] if place else [begin - 1, end], np.int64),
                    columns={},
                    turn_T=np.array([_OTHER] if place else [_STATE, _ACTION], np.int64),
                    group=i,
                )
            )
    return found
