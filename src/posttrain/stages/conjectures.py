"""Self-play of a conjecturer and a prover, one model with two forms of prompts: rounds of statements it barely proves.

Source: STP, arXiv:2502.00212, and its release (kfdong/STP at 2b5fe8b). A step is a round:

1. Seeds are proved targets whose best pass rate is above `seed_above`, each with a lemma that its proof invokes or with
   none. From seed, proof and lemma the model writes a new statement. New ones are kept, at most as many as targets.
2. Unproved targets and conjectures are tried, and proved targets too: hard ones always, others now and then.
3. The conjecturer learns from conjectures with a pass rate strictly within `band`, without those that are trivial by
   the ratio of lengths of proof and statement, weighted so that they lie where unproved targets do.
4. The prover learns from the correct proofs of the last `recent` rounds, of statements with a rate up to `easiest`. A
   proof has the weight exp(-`length_cost` characters) over the number of distinct proofs of its statement.
5. One pass from the weights of the round before, by sum(w NLL) / sum(w) over all tokens of the round.

With `retrain` a last step starts again from the role `base`, on all proofs of targets and those of conjectures with a
rate up to the band's upper end, without the weights for number. With ``conjecture: false`` it is expert iteration.

Differs: a proof's weight has no seconds of verification, since nothing learned depends on a clock. Weights are
normalised over a round and not over a batch. A full conjecture is left out of the matching; the release multiplies its
similarity by 0, so that it is taken again where all others are negative. The last step has the learning rate of the
rounds, the release twice that.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.reducers import Reducer
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rollouts import Rollout
from posttrain.components.tasks import Tasks
from posttrain.datasets.conjectures import (
    FREE,
    Conjecture,
    Seed,
    barely_proved,
    matched,
    proof_weight,
    seeds_of,
    without_trivial,
)
from posttrain.datasets.keys import digest, problem
from posttrain.datasets.templates import check_places, fill
from posttrain.engines import Sampling, wait_for
from posttrain.errors import AlarmStop, UserError
from posttrain.models import Model
from posttrain.signals import ADVANTAGE, STATE
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import check_trained, fit
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.prompts import check_prompts
from posttrain.stages.rl.collect import collect_groups, split_failed, stop_if_grading_fails
from posttrain.training.settings import Learning
from posttrain.types import FloatArray, Group, PerToken, Task, Tokens

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.packing import Example

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Word = Annotated[str, Field(min_length=1)]
CHANCE: Final = 0.05
"""Probability that a proved target that is not hard is tried again."""
MARGIN: Final = 0.1
"""By what a seed's rate must be above the band."""
RECAST: Final = (20.0, 4096)
"""Most conjectures without their lemma: a multiple of the others, or this number if it is larger."""


@frozen
class Conjectures(Stage):
    """Rounds of conjectures, proofs, and learning from both."""

    rollout: Rollout
    """How a statement is tried."""
    reward: Reward
    """Checks a proof without a reference answer; status ``ok`` is correct."""
    reducer: Reducer
    request: Word
    """What the model is asked for a new statement with. Placeholders: statement, proof."""
    lemma: Word
    """What stands before the request where there is a lemma. Placeholder: lemma."""
    prove: Word
    """The prompt of a statement. Placeholder: statement."""
    column: Word = "statement"
    """Field of a task with its statement."""
    first: Rollout | None = None
    """How statements are tried in the first round; None as in the others."""
    conjecture: bool = True
    """Whether there are conjectures; without them it is expert iteration."""
    most: PositiveInt | None = None
    """Most conjectures that are asked for in a round; None is the number of targets, the most that are kept."""
    end: Word = "\n"
    """What a new statement ends with; ``:=`` in Lean."""
    delimiters: Annotated[tuple[Word, ...], Field(min_length=1, max_length=8)] = ("; ", "\n")
    """What separates the parts of a proof."""
    marker: Word = "="
    """What a part of a proof has that is a lemma."""
    sampling: Sampling = Sampling(max_tokens=32)
    """How conjectures are sampled."""
    band: tuple[Share, Share] = (0.0, 0.25)
    """Pass rates between which, both excluded, a conjecture is learned from."""
    trivial: Share = 0.2
    """Quantile of the ratio of lengths below which a conjecture is trivial; 0 keeps all."""
    cap: NonNegativeFloat = 4.0
    """Weight at which a conjecture takes no further target; 0 gives every conjecture the weight 1."""
    easiest: Share = 0.5
    """Highest pass rate of statements whose proofs are learned from."""
    recent: Annotated[int, Field(ge=1, le=10_000)] = 3
    """Rounds whose proofs are learned from."""
    length_cost: NonNegativeFloat = 0.001
    """Of a character of a proof, in the exponent of its weight."""
    rounds: PositiveInt = 12
    """Rounds of self-play."""
    retrain: bool = True
    """Whether a last step starts again from the weights of `base`, with all proofs."""
    learner: Learning = Learning()
    """How the model is updated; a round is one step, so that minibatches are its updates."""
    tasks: Tasks | None = None
    """The targets; None takes the recipe's."""

    @field_validator("request", "lemma", "prove")
    @classmethod
    def check_template(cls, template: str) -> str:
        """Refuse a misspelled placeholder."""
        return check_places(template, ("statement", "proof", "lemma"))

    @field_validator("band")
    @classmethod
    def check_band(cls, band: tuple[float, float]) -> tuple[float, float]:
        """Refuse an empty band."""
        if band[0] >= band[1]:
            raise PydanticCustomError("band", "the band of pass rates is empty: the smaller one comes first")
        return band

    @property
    def roles(self) -> frozenset[str]:
        """The policy, the weights that the last step starts from, and the model of the embeddings."""
        own = {"policy"} | ({"base"} if self.retrain else set()) | ({"embedder"} if self._matches else set())
        return frozenset(own) | self.rollout.roles | self.reward.roles

    @property
    def _matches(self) -> bool:
        return self.conjecture and self.cap > 0

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The states of the embedder, and the needs of the rollout and the reward."""
        own = [Need(signal=STATE, role="embedder", path="cap")] if self._matches else []
        parts = (("rollout", self.rollout), ("reward", self.reward))
        return [*own, *(need for path, part in parts for need in needs_of(path, part, role="policy"))]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Targets must have a statement, and prompts must leave room for a proof."""
        check_trained(models["policy"], "policy", f"the {self.kind} stage")
        check_prompts(models["policy"], tasks, f"the {self.kind} stage")
        self.rollout.check(tasks)
        self._targets(tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """The rounds, and the last step."""
        return self.rounds + self.retrain

    def run(self, models: Models, context: StageContext) -> Models:
        """Conjecture, prove and learn; returns the models with the policy's new weights."""
        from posttrain.training.learner import Learner, Loss

        policy, steps = models["policy"], self.total_steps(context.tasks)
        learner = Learner(policy, self.learner, seed=context.seed, num_steps=steps)
        loss = Loss(per_token=_weighted, reducer=self.reducer, needs=frozenset())
        memory = dict(context.memory or {"proved": {}, "proofs": []})
        for step in fit(context, models, {"policy": learner}, steps=steps, memory=memory):
            if step.index < self.rounds:
                with context.phase("sample"):
                    before = context.sampled_tokens(models)
                    play = Round(self, models, context, step.index, memory)
                    play.run(step.record.metrics)
                context.groups = play.groups
                step.record.metrics["sampled_tokens"] = float(context.sampled_tokens(models) - before)
                stop_if_grading_fails(play.groups, 0.5)
                step.record.drop_rest(play.groups, "correct proofs of the last rounds are learned from, not rollouts")
                rows = [*play.conjecturing, *self._proving(memory, step.index)]
            else:
                _copy(models["base"], policy)
                learner.reset_optimizer()
                rows = self._final(memory)
            if not memory["proofs"]:
                raise AlarmStop(
                    f"no statement was proved by round {step.index + 1}, so there is nothing to learn from; give "
                    "targets that the model sometimes proves, or more tries (rollout.n)"
                )
            if not rows:  # all that was proved is easy
                continue
            batch = _examples(policy, rows)
            with context.phase("learn"):
                learned = learner.step(batch, loss, progress=step.progress)
            step.record.metrics |= learned.metrics
            step.record.computed_tokens += learned.computed_tokens
            step.record.metrics["trained_tokens"] = float(sum(example.num_trained for example in batch))
        return models

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of targets and steps, and the prompt of the first."""
        targets = self._targets(context.tasks)
        first = next(iter(targets))
        return [
            f"{len(targets)} targets, {self.total_steps(context.tasks)} steps",
            fill(self.prove, {"statement": first}),
        ]

    def _targets(self, tasks: Sequence[Task]) -> dict[str, Task]:
        """The targets by statement. Raises `UserError` for a task without one."""
        found = {}
        for task in tasks:
            statement = task.fields.get(self.column)
            if not isinstance(statement, str):
                raise UserError(
                    f"task {task.key} has no statement in the column '{self.column}', which the {self.kind} stage reads"
                )
            found[statement] = task
        return found

    def task_of(self, statement: str) -> Task:
        """The task of a conjecture."""
        prompt = fill(self.prove, {"statement": statement})
        return Task(
            key=digest("conjecture", prompt), prompt=prompt, domain="conjecture", fields={self.column: statement}
        )

    def asked(self, seed: Seed) -> str:
        """The prompt for a new statement."""
        before = "" if seed.lemma == FREE else fill(self.lemma, {"lemma": seed.lemma})
        return before + fill(self.request, {"statement": seed.statement, "proof": seed.proof})

    def lemmas(self, proof: str) -> list[str]:
        """The lemmas that a proof invokes, each once."""
        parts = [proof]
        for delimiter in self.delimiters:
            parts = [piece for part in parts for piece in part.split(delimiter)]
        return list(dict.fromkeys(part.strip() for part in parts if self.marker in part))

    def _proving(self, memory: Mapping[str, Any], step: int) -> list[tuple[str, str, float]]:
        """Prompt, proof and weight of what the prover learns from."""
        return [
            (fill(self.prove, {"statement": row["statement"]}), proof, self._weight(proof, len(row["proofs"])))
            for row in memory["proofs"]
            if row["round"] > step - self.recent and row["rate"] <= self.easiest
            for proof in row["proofs"]
        ]

    def _final(self, memory: Mapping[str, Any]) -> list[tuple[str, str, float]]:
        """The same for the last step: of each statement the distinct proofs of all rounds."""
        proofs: dict[str, dict[str, None]] = {}
        for row in memory["proofs"]:
            if row["target"] or row["rate"] <= self.band[1]:
                proofs.setdefault(row["statement"], {}).update(dict.fromkeys(row["proofs"]))
        return [(fill(self.prove, {"statement": s}), proof, 1.0) for s, own in proofs.items() for proof in own]

    def _weight(self, proof: str, distinct: int) -> float:
        return proof_weight(proof, distinct, self.length_cost)


class Round:
    """One round: what is sampled, and what is remembered of it."""

    def __init__(
        self, stage: Conjectures, models: Models, context: StageContext, step: int, memory: dict[str, Any]
    ) -> None:
        self.stage, self.models, self.context, self.step, self.memory = stage, models, context, step, memory
        self.targets = stage._targets(context.tasks)
        self.rng = np.random.default_rng([context.seed, step])
        self.groups: list[Group] = []
        self.conjecturing: list[tuple[str, str, float]] = []
        """Prompt, statement and weight of what the conjecturer learns from."""

    def run(self, metrics: dict[str, float]) -> None:
        """Conjecture and prove."""
        written = wait_for(self._write()) if self.stage.conjecture else []
        tried = [*self._again(), *(self.stage.task_of(c.statement) for c in written)]
        rollout = self.stage.first if self.stage.first is not None and self.step == 0 else self.stage.rollout
        samplers = [self.context.samplers(self.models, self.step, "prove", task.key) for task in tried]
        self.groups = wait_for(
            collect_groups(tried, rollout, self.stage.reward, samplers, RewardContext(step=self.step))
        )
        found = {str(g.trajectories[0].task.fields[self.stage.column]): g for g in split_failed(self.groups)[0]}
        done = [self._proved(c, found[c.statement]) for c in written if c.statement in found]
        for statement in self.targets.keys() & found.keys():
            self._remember(statement, found[statement])
        for c in done:
            self._keep(c.statement, c.rate, c.proofs, target=False)
        self._learn_to_conjecture(done, metrics)
        rates = [c.rate for c in done]
        known = self.memory["proved"]
        metrics |= {"conjectures": float(len(rates)), "proved": len(known) / len(self.targets)}
        domains = {task.domain for task in self.targets.values()}
        for domain in sorted(domains - {""}) if len(domains) > 1 else ():
            own = [s for s, task in self.targets.items() if task.domain == domain]
            metrics[f"proved/{domain}"] = sum(s in known for s in own) / len(own)
        if rates:
            low, high = self.stage.band
            metrics |= {
                "conjecture_rate": float(np.mean(rates)),
                "in_band": float(np.mean([low < rate < high for rate in rates])),
                "never_proved": float(np.mean([rate == 0 for rate in rates])),
            }

    def _again(self) -> list[Task]:
        """Targets that are tried: those that are not proved, hard ones, and some of the others."""
        known, bound = self.memory["proved"], self.stage.band[1] + MARGIN
        return [
            task
            for statement, task in self.targets.items()
            if statement not in known or known[statement][0] < bound or self.rng.random() < CHANCE
        ]

    async def _write(self) -> list[Conjecture]:
        """New statements, each with its seed."""
        most = self.stage.most or len(self.targets)
        bound = self.stage.band[1] + MARGIN
        seeds = seeds_of(self.memory["proved"], len(self.targets), bound, self.rng)
        if not seeds:
            return []
        asked = [seeds[i % len(seeds)] for i in range(most)]

        async def one(place: int, seed: Seed) -> str:
            sampler = self.context.samplers(self.models, self.step, "conjecture", place)["policy"]
            ids = sampler.encode(self.stage.asked(seed))
            stopped = replace(self.stage.sampling, stop=(*self.stage.sampling.stop, self.stage.end))
            [completion] = await sampler.sample(ids, 1, stopped)
            return completion.text if completion.stop_reason == "stop" else ""

        texts = await asyncio.gather(*(one(place, seed) for place, seed in enumerate(asked)))
        taken = {_plain(statement) for statement in self.targets} | {
            _plain(problem(task)) for task in self.context.held_out
        }
        found: dict[str, Conjecture] = {}
        for text, seed in zip(texts, asked, strict=True):
            statement = text.split(self.stage.end)[0].strip()
            known = {_plain(statement), _plain(fill(self.stage.prove, {"statement": statement}))} & taken
            if statement and not known:
                found.setdefault(_plain(statement), Conjecture(statement=statement, seed=seed))
        return list(found.values())[: len(self.targets)]

    def _proved(self, conjecture: Conjecture, group: Group) -> Conjecture:
        """With its pass rate and proofs."""
        proofs = _proofs(group)
        lemma = conjecture.seed.lemma
        invoked = lemma != FREE and any(lemma in self.stage.lemmas(proof) for proof in proofs)
        return replace(conjecture, rate=group.solved, proofs=proofs, invoked=invoked)

    def _remember(self, statement: str, group: Group) -> None:
        """Note the rate and proofs of a target."""
        proofs = _proofs(group)
        if not proofs:
            return
        best, proof, lemmas = self.memory["proved"].get(statement, (0.0, proofs[0], []))
        proof = min((proof, *proofs), key=len)
        lemmas = list(dict.fromkeys([*lemmas, *self.stage.lemmas(proof)]))
        self.memory["proved"][statement] = [max(best, group.solved), proof, lemmas]
        self._keep(statement, group.solved, proofs, target=True)

    def _keep(self, statement: str, rate: float, proofs: Sequence[str], *, target: bool) -> None:
        """Note proofs of this round."""
        if proofs:
            row = {"round": self.step, "statement": statement, "target": target, "rate": rate, "proofs": [*proofs]}
            self.memory["proofs"].append(row)

    def _learn_to_conjecture(self, done: Sequence[Conjecture], metrics: dict[str, float]) -> None:
        """Choose and weigh what the conjecturer learns from."""
        barely = barely_proved(done, self.stage.band, RECAST, self.rng)
        kept = without_trivial(barely, self.stage.trivial)
        open_ = [statement for statement in self.targets if statement not in self.memory["proved"]]
        if kept and open_ and self.stage._matches:
            embedder = self.models["embedder"]
            target_MD = _embeddings(embedder, open_, self.stage.learner)
            own_ND = _embeddings(embedder, [c.statement for c in kept], self.stage.learner)
            weight_N = matched(target_MD, own_ND, self.stage.cap, self.rng)
            kept = [replace(c, weight=float(w)) for c, w in zip(kept, weight_N, strict=True) if w > 0]
        self.conjecturing = [(self.stage.asked(c.seed), f" {c.statement}{self.stage.end}", c.weight) for c in kept]
        metrics |= {"learned_conjectures": float(len(kept)), "trivial": float(len(barely) - len(kept))}


def _plain(statement: str) -> str:
    """A statement without spaces."""
    return "".join(statement.split())


def _proofs(group: Group) -> tuple[str, ...]:
    """The distinct correct completions."""
    return tuple(dict.fromkeys(t.completion for t in group if t.solved))


def _examples(policy: "Policy", rows: Sequence[tuple[str, str, float]]) -> "list[Example]":
    """The rows as examples, with weights whose mean over all tokens is 1."""
    from posttrain.stages.sft import demonstration
    from posttrain.training.packing import example_of

    shown = [demonstration(policy, Task(key=str(i), prompt=p), text) for i, (p, text, _) in enumerate(rows)]
    count_N = np.array([t.num_trained for t in shown])
    weight_N = np.array([weight for _, _, weight in rows])
    weight_N = weight_N * count_N.sum() / max(float((weight_N * count_N).sum()), 1e-12)
    return [
        example_of(t, {ADVANTAGE: np.full(t.num_trained, weight, np.float32)}, group=i)
        for i, (t, weight) in enumerate(zip(shown, weight_N, strict=True))
    ]


def _embeddings(policy: "Policy", texts: Sequence[str], learning: Learning) -> FloatArray:
    """[N, D] mean of the last hidden states over the tokens of each text."""
    from posttrain.training.learner import evaluate_examples
    from posttrain.training.packing import Example

    ids = [np.asarray(policy.tokenizer.encode(text), np.int64) for text in texts]
    examples = [
        Example(token_ids=own, positions=np.arange(len(own)), columns={}, turn_T=np.zeros(len(own), np.int64), group=i)
        for i, own in enumerate(ids)
    ]
    found = evaluate_examples(policy, examples, frozenset({STATE}), max_tokens=learning.tokens_for(policy))
    return np.stack([own[STATE].mean(0) for own in found]).astype(np.float32)


def _weighted(tokens: Tokens) -> PerToken:
    """[T] the weighted negative log-likelihood."""
    return PerToken(loss_T=-tokens.advantage_T * tokens.logp_T)


def _copy(source: "Policy", target: "Policy") -> None:
    """Give the target the weights of the source."""
    import torch

    theirs = dict(source.named_parameters())
    with torch.no_grad():
        for name, ours in target.named_parameters():
            ours.copy_(theirs[name])
