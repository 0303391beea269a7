"""Rules of a judge that are optimised as text: by a generator that tries to fool it, and by its errors on labels.

Source: path B of Igniting Creative Writing, arXiv:2508.21476, and its release (adversarial/main.py at 992c2287). There
are two lists of rules, how to write subtly bad texts (S_G) and how to judge (S_D). A round has `batch` requests and as
many labelled texts:

    adversarial  a generator writes a bad text by S_G with an explanation, a detector calls it Good or Bad by S_D.
                 Caught: S_G is rewritten by the detector's hint. Fooled: S_D is rewritten by the explanation
    reflection   the detector judges a labelled text; after an error an analysis and a hint, both not empty, rewrite S_D

The verdicts of a round are those of the old S_D; updates are applied one by one. A list has at most `most` rules. A
rewriting that fails, is empty or has more keeps the old list. A text without a readable verdict is left out. With
`held_out` a new S_D is taken only if as many of that many labelled texts get the right verdict as before; these texts
are used for nothing else. Every task gets the final S_D as its field ``rules``, which the reward `by_rules` reads.

Labelled texts are tasks with a demonstration and a field ``label``, 1 (good) or 0. With ``role: null`` the agents are
code for greetings (`posttrain.datasets.rule_agents`); for texts of your own give a role whose model follows
instructions, and rules of your own.

Differs: the gate `held_out` is ours; the release keeps any rewriting that is not empty.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Annotated, Any, Final, Literal

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.selections import Chosen, Selection
from posttrain.datasets.rule_agents import CodeRuleAgents, ModelRuleAgents, RuleAgents
from posttrain.datasets.templates import question_of
from posttrain.engines import Sampler, Sampling, sampler_of
from posttrain.errors import NoAnswer
from posttrain.grading.strict_json import object_in
from posttrain.types import Message, Task

Rules = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1, max_length=100)]
Phase = Literal["adversarial", "reflection"]
WRITING: Final = ("um", "meh", "yo", "eh", "no name")
DETECTING: Final = ("um", "meh", "cake at a loss", "luck", "peace", "rude")
"""Two of these are of harmless words, and one is of none."""
REPLIES: Final = Sampling(temperature=0.0, max_tokens=1024)
"""How agents reply."""


@dataclass(kw_only=True)
class Game:
    """The two lists, and what happened to them."""

    writing: list[str]
    detecting: list[str]
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, name: str) -> None:
        """One more event of this name."""
        self.counts[name] = self.counts.get(name, 0) + 1


@frozen
class Lists:
    """The two lists at first."""

    writing: Rules = WRITING
    """S_G; five rules in the release."""
    detecting: Rules = DETECTING
    """S_D; six rules in the release."""


@frozen
class OptimizedRules(Selection):
    """Gives all tasks the rules of a judge that were optimised on some of them."""

    role: str | None = None
    """The model of all agents; None has agents by code."""
    phases: tuple[Phase, ...] = ("adversarial", "reflection")
    """What the rules learn from; without any they stay as they are."""
    lists: Lists = Lists()
    """Both lists at first."""
    rounds: NonNegativeInt = 5
    """Number of rounds; 5 in the release's demonstration."""
    batch: Annotated[int, Field(ge=1, le=256)] = 4
    """Requests of a round, and labelled texts of it."""
    most: Annotated[int, Field(ge=1, le=100)] = 10
    """Most rules of a list."""
    held_out: Annotated[int, Field(ge=0, le=100_000)] = 40
    """Labelled texts that decide whether a new S_D is taken; 0 takes every one."""
    slips: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """Probability that a rewriting by code is faulty."""

    @property
    def roles(self) -> frozenset[str]:
        """The agents' model."""
        return frozenset() if self.role is None else frozenset({self.role})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """Both lists of rules after all rounds, and counts of events."""
        rng = Random("optimized_rules:" + (tasks[0].key if tasks else ""))
        labelled = [task for task in tasks if task.demonstrations and task.fields.get("label") in (0, 1)]
        kept, labelled = labelled[: self.held_out], labelled[self.held_out :]
        game = Game(writing=list(self.lists.writing), detecting=list(self.lists.detecting))
        agents = self._agents(rng, samplers)
        for _ in range(self.rounds):
            rules, updates = tuple(game.detecting), list[tuple[str, str]]()
            if "adversarial" in self.phases:
                for task in rng.sample(list(tasks), min(self.batch, len(tasks))):
                    updates += await self._attacked(agents, question_of(task), rules, game)
            if "reflection" in self.phases:
                for task in rng.sample(labelled, min(self.batch, len(labelled))):
                    updates += await self._checked(agents, task, rules, game)
            for purpose, hint in updates:
                await self._rewrite(agents, purpose, hint, kept, game)
        return {"writing": game.writing, "detecting": game.detecting, "counts": dict(sorted(game.counts.items()))}

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """All tasks, with the rules."""
        rules = list(measured["detecting"])
        counts = ", ".join(f"{number} {name}" for name, number in measured["counts"].items()) or "nothing happened"
        return Chosen(
            tasks=[replace(task, fields={**task.fields, "rules": rules}) for task in tasks],
            summary=f"the judge's rules after {self.rounds} rounds ({counts}): {'; '.join(rules)}",
        )

    def _agents(self, rng: Random, samplers: Mapping[str, Sampler]) -> RuleAgents:
        if self.role is None:
            return CodeRuleAgents(rng=rng, slips=self.slips)
        writer = sampler_of(self.role, samplers, f"the {self.kind} selection prompts").bind("rules")

        async def ask(request: str) -> Any:
            try:
                [reply] = await writer.write((Message(role="user", content=request),), 1, REPLIES)
            except NoAnswer:
                return None
            return object_in(reply)

        return ModelRuleAgents(ask=ask)

    async def _attacked(
        self, agents: RuleAgents, question: str, rules: Sequence[str], game: Game
    ) -> list[tuple[str, str]]:
        """The update after a text of the generator; none where a reply cannot be read."""
        made = await agents.generate(question, game.writing)
        found = None if made is None else await agents.detect(question, made[0], rules)
        if made is None or found is None:
            game.count("unreadable")
            return []
        good, hint = found
        game.count("fooled" if good else "caught")
        return [("detecting", made[1])] if good else [("writing", hint)]

    async def _checked(self, agents: RuleAgents, task: Task, rules: Sequence[str], game: Game) -> list[tuple[str, str]]:
        """The update after a labelled text; none where the verdict is right."""
        question, text = question_of(task), task.demonstrations[0]
        found = await agents.detect(question, text, rules)
        if found is None:
            game.count("unreadable")
            return []
        if found[0] == bool(task.fields["label"]):
            return []
        game.count("errors")
        found_why = await agents.reflect(question, text, rules, found[0])
        if found_why is None or not (found_why[0].strip() and found_why[1].strip()):
            game.count("unreadable")
            return []
        return [("detecting", found_why[1])]

    async def _rewrite(self, agents: RuleAgents, purpose: str, hint: str, kept: Sequence[Task], game: Game) -> None:
        """Put a new list in the place of the old one, unless it failed or the gate refuses it."""
        old = game.writing if purpose == "writing" else game.detecting
        new = await agents.rewrite(old, hint, "writing" if purpose == "writing" else "detecting", self.most)
        if not new or len(new) > self.most or not all(rule.strip() for rule in new):
            game.count("failed rewritings")
        elif purpose == "writing":
            game.writing = list(new)
        elif await self._right(agents, new, kept) < await self._right(agents, old, kept):
            game.count("refused rewritings")
        else:
            game.detecting = list(new)

    async def _right(self, agents: RuleAgents, rules: Sequence[str], kept: Sequence[Task]) -> int:
        """How many held-out texts get the right verdict; one without a readable verdict is not."""
        found = [await agents.detect(question_of(task), task.demonstrations[0], rules) for task in kept]
        return sum(
            one is not None and one[0] == bool(task.fields["label"]) for one, task in zip(found, kept, strict=True)
        )
