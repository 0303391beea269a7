"""What a model gains from rules of the environment that its own failures teach, with its weights unchanged.

Source: WALL-E 2.0, arXiv:2504.15785, and its release (elated-sawyer/WALL-E at 3dad1ed). In each round the model plays
`episodes` tasks behind the rules so far (the environment `foreseen`). What it did, and whether it worked, is stored;
rules that never forbid what worked are induced from all of it, and a greedy cover of the failures is kept
(`posttrain.statistics.action_rules`). Before the first round and after each one the last `tested` tasks are played:
success, carried-out actions, refusals. No weight changes, by digest.

    posttrain diagnose foresight RUN tasks=mine.jsonl \
        'rollout={kind: turns, max_turns: 60, environment: {kind: foreseen, environment: mine.py}}' fails='^fails'
    # an observation in which the pattern `fails` is found is that of an action that failed

Kept rules can be given to any run: ``rollout.environment.rules=["cut if wood:no"]``.

Differs: rules are conjunctions of words that a state has or lacks, tried one by one; no language model writes them, and
there is no graph of knowledge or of the scene: what is known of the state is its words. `RuleBook.learned` takes rules
as functions from elsewhere. The model of the environment expects success of all that no rule forbids.

Measured here, for an agent that acts at random in a workshop with six hidden preconditions (5 seeds, 20 episodes per
round, 100 new tasks): success 23 % [20, 27] without rules, 55 % [49, 60] after one round and no more after two and
four, as the kept rules are the six hidden ones from then on, and no others. Failed actions fall from 8.7 [8.4, 9.1] to
0.13 [0.09, 0.17] per episode, at 9.8 refusals. Rules and a classifier of single words predict equally well whether an
action works: 92.5 % and 91.3 % after 2 episodes, all after 20 and after 500 (docs/experiments.md).
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._digest import digest_of
from posttrain.components.environments import Episode
from posttrain.components.rollouts import Rollout
from posttrain.components.tasks import Tasks
from posttrain.engines import Server, wait_for
from posttrain.errors import UserError
from posttrain.statistics.action_rules import Foresight, RuleBook, Transition, parsed, words_of
from posttrain.statistics.intervals import wilson
from posttrain.types import Task, Trajectory

ROWS: Final = (277,)


@frozen
class RulesOfActions(Diagnostic):
    """Learns rules from a model's episodes, and measures the model behind them."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    rollout: Rollout
    """How the model acts: ``turns`` in the environment ``foreseen`` around one's own."""
    tasks: Tasks
    """What is played: the first tasks in the rounds, the last ones in the tests."""
    rounds: Annotated[int, Field(ge=1, le=100)] = 4
    """How often rules are learned."""
    episodes: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Tasks that are played in a round."""
    tested: Annotated[int, Field(ge=1, le=10_000)] = 40
    """Tasks of each test, never played in a round."""
    conditions: Annotated[int, Field(ge=1, le=2)] = 2
    """Most conditions of a rule."""
    fails: str = ""
    """Pattern in the observation after an action that failed; empty: the action left the state as it was."""

    @field_validator("fails")
    @classmethod
    def check_pattern(cls, fails: str) -> str:
        """Refuse what is no pattern."""
        try:
            re.compile(fails)
        except re.error as error:
            raise PydanticCustomError("pattern", "no pattern: {error}", {"error": str(error)}) from None
        return fails

    def examine(self, *subjects: Subject) -> Finding:
        """Test, and then play and learn, and test again, in each round."""
        [subject] = subjects
        tasks = list(self.tasks.load())
        needed = self.rounds * self.episodes + self.tested
        if len(tasks) < needed:
            raise UserError(
                f"{self.rounds} rounds of {self.episodes} tasks and {self.tested} tests need {needed} tasks, got "
                f"{len(tasks)}; give more, or lower rounds, episodes or tested"
            )
        policy = subject.load()
        before, server = digest_of(policy), subject.serve(policy)
        self._behind(()).check(tasks)
        book, rows = RuleBook(), [self._tested(server, tasks, (), 0)]
        for turn in range(self.rounds):
            own = tasks[turn * self.episodes : (turn + 1) * self.episodes]
            rules = _texts(book)
            played = self._played(server, own, rules, turn)
            book = book.learned(
                [t for trajectory in played for t in self._transitions(trajectory, rules)], conditions=self.conditions
            )
            rows.append(self._tested(server, tasks, _texts(book), turn + 1))
        same = digest_of(policy) == before
        values = {
            "rounds": rows,
            "rules": list(_texts(book)),
            "transitions": len(book.transitions),
            "failures": sum(not t.worked for t in book.transitions),
            "weights_unchanged": same,
        }
        return Finding(values=values, lines=_lines(values))

    def _tested(self, server: Server, tasks: Sequence[Task], rules: tuple[str, ...], turn: int) -> dict[str, Any]:
        """Success, carried-out actions and refusals on the last tasks."""
        episodes = [t.fact(Episode) for t in self._played(server, tasks[-self.tested :], rules, f"test {turn}")]
        solved = sum(e is not None and e.verdict is not None and e.verdict.solved for e in episodes)
        measures = [e.measures for e in episodes if e is not None and e.measures is not None]

        def average(name: str) -> float | None:
            return sum(m[name] for m in measures) / len(measures) if measures else None

        return {
            "rules": len(rules),
            "success": solved / self.tested,
            "interval": list(wilson(solved, self.tested)),
            "carried_out": average("carried_out"),
            "refused": average("refused"),
            "left_out": len(episodes) - len(measures),
        }

    def _played(
        self, server: Server, tasks: Sequence[Task], rules: tuple[str, ...], turn: int | str
    ) -> list[Trajectory]:
        """One rollout per task behind the rules."""
        rollout = self._behind(rules)

        async def run() -> list[Trajectory]:
            samplers = [{"policy": server.bind("foresight", turn, task.key)} for task in tasks]
            played = (rollout.collect(task, own) for task, own in zip(tasks, samplers, strict=True))
            return [t for groups in await asyncio.gather(*played) for group in groups for t in group]

        return wait_for(run())

    def _behind(self, rules: tuple[str, ...]) -> Rollout:
        """The rollout with these rules. Raises `UserError` for one without a place for them."""
        environment: Any = getattr(self.rollout, "environment", None)
        if not all(hasattr(environment, name) for name in ("rules", "refusals")):
            raise UserError(
                f"the rollout '{self.rollout.kind}' has no environment with rules; write rollout={{kind: turns, "
                "environment: {kind: foreseen, environment: YOURS}}"
            )
        changed: Any = self.rollout
        made: Rollout = replace(changed, environment=replace(environment, rules=rules), n=1)
        return made

    def _transitions(self, trajectory: Trajectory, rules: tuple[str, ...]) -> list[Transition]:
        """The actions that were carried out, and whether they worked; one whose effect was not seen is left out."""
        environment: Any = getattr(self.rollout, "environment", None)
        foresight = Foresight(rules=[parsed(text) for text in rules], refusals=environment.refusals)
        episode, segments, found = trajectory.fact(Episode), trajectory.segments, []
        solved = episode is not None and episode.verdict is not None and episode.verdict.solved
        turns = [i for i, segment in enumerate(segments) if segment.state_key is not None]
        for place, i in enumerate(turns):
            words, action = words_of(segments[i].state_key or ""), segments[i].text.strip()
            if foresight.refuses(words, action) is not None:
                continue
            following = segments[turns[place + 1]].state_key if place + 1 < len(turns) else None
            if following is not None:
                seen = segments[i + 1].text
                worked = not re.search(self.fails, seen) if self.fails else words_of(following) != words
            elif solved:
                worked = True
            else:
                continue
            found.append(Transition(words=words, action=action, worked=worked))
        return found


def _texts(book: RuleBook) -> tuple[str, ...]:
    return tuple(rule.text for rule in book.rules)


def _lines(values: dict[str, Any]) -> list[str]:
    """A line for each test, and the rules."""
    lines = [f"{values['transitions']} actions in the rounds, of which {values['failures']} failed"]
    for turn, row in enumerate(values["rounds"]):
        low, high = row["interval"]
        acted = (
            "" if row["carried_out"] is None else f"; {row['carried_out']:.1f} actions, {row['refused']:.1f} refused"
        )
        lines.append(f"round {turn}: {row['success']:.1%} [{low:.1%}, {high:.1%}], {row['rules']} rules{acted}")
    lines += [f"rule: {text}" for text in values["rules"]]
    return [*lines, "weights: unchanged" if values["weights_unchanged"] else "weights: CHANGED"]
