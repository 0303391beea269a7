r"""A guard and a generator that writes what the guard gets wrong: rounds of candidates, pairs, and a retrained guard.

Source: DuoGuard, arXiv:2502.05163, and its release (yihedeng9/DuoGuard at 5e6bd56 and a public summary). A task is a
seed: a text with its categories of harm, none for a safe one, and a prompt to write it anew. A step is a round:

1. The policy writes candidates for some seeds. A candidate inherits the categories of its seed.
2. The label filter (`consistent`) drops those that do not keep them; what it cannot read is dropped, not passed, and
   so is a candidate that the guard's context has no room for.
3. The guard's verdict is the largest sigmoid of its outputs, above 1/2 for unsafe. Of the others the chosen one is the
   hardest that it gets wrong, the rejected one the easiest that it gets right; a seed without both gives no pair.
4. The policy learns from the pairs, by `loss` with ``reference: old``, the weights at the start of the round.
5. All that the guard gets wrong is added to its data, which are kept over rounds. With `retrain` the guard starts again
   from the role `start`, and learns from seeds and data, by

    log(1 + sum over k not in Y of e^{s_k}) + log(1 + sum over k in Y of e^{-s_k})

with Y the categories of a text: only the worst outputs move. The second term of a safe text is 0.

Differs: how the authors choose pairs is not released; the order by the guard's loss is ours. They let the filter's
refusals pass as unsafe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen, nearest
from posttrain.components.preferences import PreferenceLoss, compare
from posttrain.components.reducers import Reducer
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rollouts import Rollout
from posttrain.components.tasks import Tasks
from posttrain.datasets.order import shuffled
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import SCORES, columns_in, roles_in, trained_in
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.columns import with_columns
from posttrain.stages.fit import check_trained, fit
from posttrain.stages.heads import examples_of
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.pairs import examples_of_pair, pair_trajectories
from posttrain.stages.prompts import check_prompts
from posttrain.stages.rl.collect import collect_groups, split_failed, stop_if_grading_fails
from posttrain.training.settings import Learning
from posttrain.types import FloatArray, Group, PerToken, Preference, Task, Tokens, Trajectory

if TYPE_CHECKING:
    import torch

    from posttrain.policies import Policy

Text = tuple[str, Sequence[int]]
"""A text and its categories."""


@frozen
class GuardRounds(Stage):
    """Rounds of a generator against a guard."""

    rollout: Rollout
    """How the policy writes candidates of a seed."""
    loss: PreferenceLoss
    """Of the pairs."""
    reducer: Reducer
    consistent: Reward
    """The label filter: status ``ok`` where a candidate keeps the categories of its seed."""
    filtered: bool = True
    """Whether the others are dropped; to show what happens if they are not."""
    column: Annotated[str, Field(min_length=1)] = "text"
    """Field of a task with the text of the seed."""
    categories: Annotated[str, Field(min_length=1)] = "categories"
    """Field with its categories, a list of numbers from 0."""
    role: str = "guard"
    """The model of the guard; it needs ``head: reward``, ``trained: true`` and an output for each category."""
    start: str | None = "start"
    """Role with the weights that the guard is trained from in each round; None goes on from those it has."""
    learns: bool = True
    """Whether the policy learns; a frozen one is plain augmentation."""
    rounds: PositiveInt = 6
    """Rounds."""
    batch: PositiveInt = 64
    """Seeds that are written anew in a round."""
    seeds: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Number of seeds that the guard learns from, from the first; None is all."""
    learner: Learning = Learning()
    """How the policy is updated; a round is one step, so that minibatches are its updates."""
    guard_learner: Learning = Learning()
    """How the guard is updated in a round."""
    tasks: Tasks | None = None
    """The seeds; None takes the recipe's."""

    @property
    def roles(self) -> frozenset[str]:
        """The generator, the guard, its first weights, and those of the filter and the loss."""
        others = self.consistent.roles
        first = frozenset({self.start}) if self.start else frozenset()
        return frozenset({"policy", self.role}) | first | others | roles_in(self.loss.needs) | self.rollout.roles

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The outputs of the guard, and the needs of the parts."""
        own = Need(signal=SCORES, role=self.role, path="role", setting="role")
        parts = (("rollout", self.rollout), ("consistent", self.consistent), ("loss", self.loss))
        return [own, *(need for path, part in parts for need in needs_of(path, part, role="policy"))]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Seeds must have a text and categories, and prompts must leave room for a candidate."""
        check_prompts(models["policy"], tasks, f"the {self.kind} stage")
        self.rollout.check(tasks)
        for task in tasks:
            self.seed_of(task)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """The setting `rounds`."""
        return self.rounds

    def run(self, models: Models, context: StageContext) -> Models:
        """Play the rounds; returns the models with the new weights of both."""
        from posttrain.training.learner import Learner, Loss

        learners = {}
        for role, learning in ((self.role, self.guard_learner), *((("policy", self.learner),) if self.learns else ())):
            check_trained(models[role], role, f"the {self.kind} stage")
            learners[role] = Learner(models[role], learning, seed=context.seed, num_steps=self.rounds)
        seeds = [self.seed_of(task) for task in context.tasks[: self.seeds]]
        memory: dict[str, Any] = dict(context.memory or {"data": []})

        def of_texts(tokens: Tokens) -> PerToken:
            return per_token(tokens, now["wanted"])

        guarding = Loss(per_token=of_texts, reducer=self.reducer, needs=frozenset({SCORES}))
        now: dict[str, FloatArray] = {}
        for step in fit(context, models, learners, steps=self.rounds, memory=memory):
            metrics = step.record.metrics
            with context.phase("sample"):
                before = context.sampled_tokens(models)
                groups = context.groups = self._written(models, context, step.index)
            metrics["sampled_tokens"] = float(context.sampled_tokens(models) - before)
            stop_if_grading_fails(groups, 0.5)
            step.record.drop_rest(groups, "pairs and data of a guard are made of them")
            with context.phase("signals"):
                pairs, wrong = self._chosen(groups, models, metrics)
            memory["data"] += [[t.completion.strip(), list(self.seed_of(t.task)[1])] for t in wrong]
            with context.phase("learn"):
                if self.learns and pairs:
                    self._learn(pairs, models, learners["policy"], step.progress, metrics)
                if self.start is not None:
                    _copy(models[self.start], models[self.role])
                    learners[self.role].reset_optimizer()
                known = [*seeds, *((text, own) for text, own in memory["data"])]
                examples, now["wanted"] = self._labelled(known, models[self.role], context)
                learned = learners[self.role].step(examples, guarding, progress=step.progress)
            metrics |= {f"{self.role}/{name}": value for name, value in learned.metrics.items()}
            metrics |= {"data": float(len(memory["data"])), "trained_tokens": float(len(known))}
        return models

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of seeds, and the first one with its prompt."""
        text, categories = self.seed_of(context.tasks[0])
        return [
            f"{len(context.tasks)} seeds, {self.rounds} rounds of {self.batch}",
            f"{text!r} is {categories or 'safe'}",
        ]

    def seed_of(self, task: Task) -> Text:
        """The text and the categories of a seed. Raises `UserError` where there are none."""
        text, own = task.fields.get(self.column), task.fields.get(self.categories)
        if not isinstance(text, str) or not isinstance(own, list | tuple) or not all(isinstance(k, int) for k in own):
            name = self.categories if isinstance(text, str) else self.column
            raise UserError(
                f"task {task.key} is no seed: give it the columns '{self.column}', a text, and '{self.categories}', a "
                f"list of numbers from 0 that is empty for a safe text; {nearest(name, task.fields)}"
            )
        return text, own

    def _written(self, models: Models, context: PreviewContext, step: int) -> list[Group]:
        """The scored candidates of a round's seeds."""
        tasks = [context.tasks[i] for i in shuffled(len(context.tasks), self.batch, step, context.seed)]
        samplers = [context.samplers(models, step, place) for place in range(len(tasks))]
        return wait_for(collect_groups(tasks, self.rollout, self.consistent, samplers, RewardContext(step=step)))

    def _chosen(
        self, groups: Sequence[Group], models: Models, metrics: dict[str, float]
    ) -> tuple[list[tuple[Task, Preference]], list[Trajectory]]:
        """The pairs of a round, and the candidates that the guard gets wrong."""
        read = [t for group in split_failed(groups)[0] for t in group]
        guard = models[self.role]
        kept = [t for t in read if (t.solved or not self.filtered) and _readable(guard, t.completion.strip())]
        seen = self.verdicts(guard, [(t.completion.strip(), self.seed_of(t.task)[1]) for t in kept])
        by_seed: dict[str, list[tuple[float, bool, Trajectory]]] = {}
        for t, (loss, right) in zip(kept, seen, strict=True):
            by_seed.setdefault(t.task.key, []).append((loss, right, t))
        pairs = []
        for own in by_seed.values():
            misses, hits = [one for one in own if not one[1]], [one for one in own if one[1]]
            if misses and hits:
                chosen, rejected = max(misses, key=lambda one: one[0]), min(hits, key=lambda one: one[0])
                pair = Preference(
                    chosen=chosen[2].completion,
                    rejected=rejected[2].completion,
                    fields={"rule": self.kind, "margin": chosen[0] - rejected[0]},
                )
                pairs.append((chosen[2].task, pair))
        fooled = list({t.completion: t for own in by_seed.values() for _, right, t in own if not right}.values())
        share = float(np.mean([not right for _, right in seen])) if seen else 0.0
        metrics |= {"kept": len(kept) / max(sum(map(len, groups)), 1), "fooled": share, "pairs": float(len(pairs))}
        return pairs, fooled

    def verdicts(self, guard: "Policy", texts: Sequence[Text]) -> list[tuple[float, bool]]:
        """Of each text the guard's loss, and whether its verdict on safety is right."""
        import torch

        from posttrain.training.learner import evaluate_examples

        if not texts:
            return []
        examples = examples_of(guard, [(Task(key=str(i), prompt=""), text) for i, (text, _) in enumerate(texts)])
        found = evaluate_examples(guard, examples, frozenset({SCORES}), max_tokens=self.guard_learner.tokens_for(guard))
        score_NK = torch.from_numpy(np.stack([own[SCORES][-1] for own in found])).double()
        loss_N = guard_loss(score_NK, torch.from_numpy(wanted(texts, score_NK.shape[1])))
        unsafe_N = (score_NK.max(1).values > 0).tolist()
        return [
            (loss, unsafe == bool(own)) for loss, unsafe, (_, own) in zip(loss_N.tolist(), unsafe_N, texts, strict=True)
        ]

    def _labelled(self, texts: Sequence[Text], guard: "Policy", context: PreviewContext) -> "tuple[Any, FloatArray]":
        """The examples of the guard, and [M, K] their categories."""
        plain = examples_of(guard, [(Task(key=str(i), prompt=""), text) for i, (text, _) in enumerate(texts)])
        outputs = context.model_settings[self.role].outputs
        return [replace(example, group=i) for i, example in enumerate(plain)], wanted(texts, outputs)

    def _learn(
        self,
        pairs: Sequence[tuple[Task, Preference]],
        models: Models,
        learner: Any,
        progress: float,
        metrics: dict[str, float],
    ) -> None:
        """Update the policy with pairs."""
        from posttrain.training.learner import Loss

        plain = [
            example
            for place, (task, pair) in enumerate(pairs)
            for example in examples_of_pair(pair_trajectories(models["policy"], task, pair), place)
        ]
        needs = self.loss.needs
        examples = with_columns(plain, columns_in(needs), models, role="policy", learning=self.learner)

        def of_pairs(tokens: Tokens) -> PerToken:
            return compare(self.loss, tokens)

        loss = Loss(per_token=of_pairs, reducer=self.reducer, needs=trained_in(needs), whole_groups=True)
        metrics |= learner.step(examples, loss, progress=progress).metrics


def wanted(texts: Sequence[Text], outputs: int) -> FloatArray:
    """[N, K] 1 for the categories of each text. Raises `UserError` for one that no output is for."""
    found_NK = np.zeros((len(texts), outputs), np.float32)
    for i, (text, own) in enumerate(texts):
        if own and not 0 <= min(own) <= max(own) < outputs:
            raise UserError(
                f"{text[:60]!r} has the categories {list(own)}, and the guard has outputs 0 to {outputs - 1}"
            )
        found_NK[i, list(own)] = 1.0
    return found_NK


def guard_loss(score_NK: "torch.Tensor", wanted_NK: "torch.Tensor") -> "torch.Tensor":
    """[N] loss of each row of outputs; stable for large ones."""
    import torch

    inside_NK = wanted_NK > 0
    zero_N1 = score_NK.new_zeros(len(score_NK), 1)
    others_NK = score_NK.masked_fill(inside_NK, -torch.inf)
    own_NK = (-score_NK).masked_fill(~inside_NK, -torch.inf)
    return torch.cat([zero_N1, others_NK], 1).logsumexp(1) + torch.cat([zero_N1, own_NK], 1).logsumexp(1)


def per_token(tokens: Tokens, wanted_GK: FloatArray) -> PerToken:
    """[T] the loss of the text that each token ends."""
    import torch

    score_TO = tokens[SCORES]
    wanted_TK = torch.as_tensor(wanted_GK).to(score_TO)[tokens.group_N[tokens.sequence_T]]
    loss_T = guard_loss(score_TO, wanted_TK)
    right_T = ((score_TO.max(1).values > 0) == (wanted_TK.sum(1) > 0)).to(loss_T.dtype)
    return PerToken(loss_T=loss_T, metrics={"accuracy": right_T})


def _readable(guard: "Policy", text: str) -> bool:
    """Whether the guard's context has room for a text that is not empty; a candidate may have other tokens there."""
    return bool(text) and len(guard.tokenizer.encode(text)) < guard.context


def _copy(source: "Policy", target: "Policy") -> None:
    """Give the target the weights of the source."""
    import torch

    theirs = dict(source.named_parameters())
    with torch.no_grad():
        for name, ours in target.named_parameters():
            ours.copy_(theirs[name])
