"""Rollouts that go on over changes of the weights, and batches that form as they end (`schedule=streaming`).

    begin what the quota allows --> all write a piece --> groups that ended: filter, into the table --+
          ^                                                                                            |
          +---------------------------- until the table has a batch <---------------------------------+
                                        then learn, while more pieces are written

Everything is decided by numbers of steps and of tokens. What is in progress is in the checkpoint with the tokens that
it has. The journal has each piece with the step whose weights drew it, and what made each batch: `Replayed` computes
the same batches from it, without quota, table or order of arrival.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from posttrain.components.curricula import Pick
from posttrain.components.filters import Dropped
from posttrain.components.rewards import RewardContext, scored
from posttrain.components.timetables import Streams
from posttrain.errors import RunFailed, UserError
from posttrain.stages.fit import Step
from posttrain.stages.rl.ages import Staleness
from posttrain.stages.rl.ahead import Collected
from posttrain.stages.rl.choosing import with_facts
from posttrain.stages.rl.collect import filter_groups, stop_if_grading_fails
from posttrain.stages.rl.collecting import Collecting
from posttrain.stages.rl.flight import Flight, Flown
from posttrain.stages.rl.pieces import (
    PiecedSampler,
    Progress,
    Waiting,
    plain_answers,
    read_answers,
    scored_once,
    without_given_up,
)
from posttrain.stages.rl.spans import with_span_rewards, with_spans
from posttrain.stages.rl.table import Table, by_age, first
from posttrain.types import Group

STREAM = "stream"
"""Key of what is in progress in the memory of a stage."""
LEARN = "learn"
"""The consumer of the table."""
OLD = "too old"
_LOOK = 0.01
"""Seconds after which it is seen that nothing is in progress and the learner is done."""


class Stream:
    """The groups of a stage, by their numbers: number g is of the g // B-th choice of tasks."""

    always = True
    """Whether steps are sampled that learn from demonstrations alone."""

    def __init__(self, collecting: Collecting, settings: Streams) -> None:
        """What is in progress in the memory of the stage is taken over."""
        self._collecting, self._settings = collecting, settings
        self._tasks = {task.key: task for task in collecting.context.tasks}
        self._flight = Flight()
        self._learned = threading.Event()
        self._thread = threading.get_ident()
        self._step = 0
        self._picks: list[Pick] = []
        self._coming: Callable[[], Any] | None = None
        self._begun: list[Any] = []
        self._pieces: list[Any] = []
        self._ended: list[int] = []
        self._left: list[Any] = []
        self._batch: list[Any] = []
        self._metrics: dict[str, float] = {}
        self._dropped: list[Collected] = []
        self._rejected = 0
        kept = collecting.memory.get(STREAM, {})
        self._next = kept.get("next", 0)
        self._draws = kept.get("draws", 0)
        self._accepted: int = kept.get("accepted", 0)
        self._sampled = kept.get("sampled", 0)
        self._table = Table.unpacked(kept["table"]) if kept else Table()
        self._picks = [self._unpacked(pick) for pick in kept.get("picks", ())]
        self._dropped = [Collected.unpacked(item, collecting.context.tasks) for item in kept.get("dropped", ())]
        for item in kept.get("running", ()):
            self._start(item["number"], self._unpacked(item["pick"]), item["begun"], read_answers(item["answers"]))

    def take(self, step: int) -> Collected:
        """The rollouts of a step. Those of later ones go on meanwhile, and until `settle`."""
        self._step = self._flight.gate.step = step
        self._learned.clear()
        self._metrics, self._rejected = {}, 0
        before = self._counter()
        rows = self._wait()
        collected = self._collected(rows)
        self._choose_ahead()
        now = self._counter()
        collected = replace(collected, sampled=self._sampled + now - before)
        self._sampled = 0
        context = self._collecting.context
        self._learned.clear()
        self._thread = threading.get_ident()
        self._coming = context.beside(self._collecting.models, self._beside)
        return collected

    def settle(self) -> None:
        """Wait for what is sampled beside, keep all that goes on in the memory, and write the journal."""
        self._learned.set()
        if self._coming is not None:
            self._coming()
            self._coming = None
        self._collecting.context.journal(
            {
                "stage_step": self._step + 1,
                "begun": self._begun,
                "anew": [list(one) for one in self._flight.gate.given_up],
                "draws": self._draws,
                "pieces": self._pieces,
                "ended": self._ended,
                "left": self._left,
                "batch": self._batch,
            }
        )
        self._begun, self._pieces, self._ended, self._left, self._batch = [], [], [], [], []
        self._flight.gate.given_up = []
        self._collecting.memory[STREAM] = {
            "next": self._next,
            "draws": self._draws,
            "accepted": self._accepted,
            "sampled": self._sampled,
            "table": self._table.packed(),
            "picks": [_packed(pick) for pick in self._picks],
            "dropped": [item.packed(self._tasks) for item in self._dropped],
            "running": [
                {
                    "number": flown.progress.number,
                    "pick": _packed(flown.pick),
                    "begun": flown.begun,
                    "answers": plain_answers(flown.progress),
                }
                for flown in self._flight.flown
            ],
        }

    def store(self) -> None:
        """It is in the memory since the last `settle`."""

    def close(self) -> None:
        """End what is in progress."""
        self._learned.set()
        if self._coming is not None:  # the step was not settled: its error is raised already
            with suppress(Exception):
                self._coming()
        self._flight.close()

    # Rounds

    def _wait(self) -> list[int]:
        """Rows of the batch of this step."""
        while True:
            self._drop_old()
            rows = self._table.take(LEARN, ("groups",), self._collecting.prompts, self._in_time)
            if rows:
                return rows
            there = len(self._table.ready(LEARN, ("groups",)))
            size = self._collecting.prompts
            if there < size and self._rejected >= self._settings.rejected * size:
                return self._table.take(LEARN, ("groups",), there)
            self._round(may_choose=True)

    def _beside(self) -> None:
        before = self._counter()
        if self._settings.order == "clock":
            self._until_learned()
        else:
            for _ in range(self._settings.learning):
                self._round(may_choose=False)
        self._sampled += self._counter() - before

    def _round(self, *, may_choose: bool) -> None:
        """Begin groups, and let all in progress write a piece."""
        while self._room() > 0:
            if not self._picks:
                if not may_choose:
                    break
                self._choose()
            self._begin(self._picks.pop(0))
        if self._settings.order == "clock":
            self._take_in(*self._flight.flow(lambda: not self._flight.flown or self._learned.is_set()))
        else:
            self._advance(lambda name: True)

    def _until_learned(self) -> None:
        """By the clock, in a thread beside the learner: no time where this is the learner's own."""
        while threading.get_ident() != self._thread and not self._learned.is_set():
            self._round(may_choose=False)
            if not self._flight.flown:
                self._learned.wait(_LOOK)
        self._take_in(*self._flight.land())

    def _advance(self, chosen: Callable[[tuple[int, str]], bool]) -> int:
        """Let the chosen pieces of groups be written, and take in what ended; returns the number of pieces."""
        return self._take_in(*self._flight.go(lambda asked: chosen((asked.progress.number, asked.name))))

    def _take_in(self, passed: Sequence[Waiting], ended: Sequence[Flown]) -> int:
        for asked in passed:
            written = asked.progress.answers[asked.name].get("completions", ())  # none in a piece that idles
            self._pieces.append([asked.progress.number, asked.name, [len(one["token_ids"]) for one in written]])
        for flown in ended:
            self._arrive(flown)
        return len(passed)

    def _room(self) -> int:
        """Groups that may begin."""
        settings, running = self._settings, len(self._flight.flown)
        quota = min(settings.eta + self._step + 1, self._collecting.steps) * self._collecting.prompts
        return min(quota - self._accepted - running, settings.running - running)

    def _choose_ahead(self) -> None:
        """Choose tasks for all that may begin before the next step."""
        while len(self._picks) < self._room():
            self._choose()

    def _choose(self) -> None:
        """The next choice of tasks. One beyond the last step counts as a further one of that."""
        number, self._draws = self._draws, self._draws + 1
        over = max(number - self._collecting.steps + 1, 0)
        step = self._numbered(number)
        self._picks += self._collecting.choose(step, self._collecting.prompts, over)
        for name, value in step.record.metrics.items():
            self._metrics[name] = self._metrics.get(name, 0.0) + value

    def _numbered(self, number: int) -> Step:
        return Step(index=min(number, self._collecting.steps - 1), total=self._collecting.steps)

    # Groups

    def _begin(self, pick: Pick) -> None:
        number, self._next = self._next, self._next + 1
        self._begun.append([number, *_packed(pick)])
        self._start(number, pick, self._step, {})

    def _start(self, number: int, pick: Pick, begun: int, answers: dict[str, dict[str, Any]]) -> None:
        progress = Progress(number=number, answers=answers)
        self._flight.begin(progress, pick, begun, self._work(progress, pick))

    async def _work(self, progress: Progress, pick: Pick) -> list[Group]:
        """The scored groups of a task."""
        own, gate = self._collecting, self._flight.gate
        draw, place = divmod(progress.number, own.prompts)
        step = self._numbered(draw)
        bound = own.context.samplers(own.models, draw, place)
        texts = {role for role, policy in own.models.items() if policy.called == "model"}
        trained = {role for role, model in own.context.model_settings.items() if model.trained} & texts
        piece, keeps = self._settings.piece, self._settings.caches == "kept"
        pieced = {
            role: PiecedSampler(sampler, role, progress, gate, piece if role in trained else None, keeps=keeps)
            for role, sampler in bound.items()
        }
        scoring = RewardContext(
            progress=step.progress,
            step=step.index,
            place=place,
            seed=own.context.seed,
            learning=True,
            state=own.memory["reward"],
            samplers={role: sampler.bind("reward") for role, sampler in bound.items()},
        )

        async def scorer(group: Group) -> Group:
            now = replace(scoring, turn=gate.step)
            return await scored_once(group, progress, gate, lambda group: scored(group, own.reward, now))

        groups = await own.rollout(step).collect_scored(pick.task, pieced, scorer)
        if any(t.score is None for group in groups for t in group):
            raise UserError(
                "schedule=streaming samples in pieces of schedule.piece tokens by itself, and this rollout leaves "
                "groups unfinished; take rollout=independent"
            )
        return with_facts(groups, pick.facts)

    def _arrive(self, flown: Flown) -> None:
        """Put the groups of a task that ended into the table, unless they are rejected."""
        groups, number = flown.task.result(), flown.progress.number
        self._ended.append(number)
        dropped: list[Dropped] = []
        kept = groups
        if self._settings.filtered == "group":
            memory = self._collecting.memory
            memory["filters"], kept, dropped = filter_groups(self._collecting.filters, memory["filters"], groups)
        collected = Collected(groups=groups, kept=kept, dropped=dropped)
        if not kept:
            self._reject(number, collected, "filtered")
            return
        self._accepted += 1
        self._table.add(
            number=number, version=flown.begun, spans=flown.progress.spans, groups=collected.packed(self._tasks)
        )

    def _reject(self, number: int, collected: Collected, why: str) -> None:
        self._left.append([number, why])
        self._dropped.append(collected)
        self._rejected += 1

    def _drop_old(self) -> None:
        """Drop groups that wait and are too old by now."""
        bound = self._settings.oldest
        if bound is None or self._settings.too_old == "wait":
            return
        for row in self._table.ready(LEARN, ("groups",)):
            if self._step - self._table.get(row, "version") > bound:
                found = Collected.unpacked(self._table.get(row, "groups"), self._collecting.context.tasks)
                old = [Dropped(group=group, reason=OLD) for group in found.kept]
                self._table_remove(row, replace(found, kept=[], dropped=[*found.dropped, *old]))

    def _table_remove(self, row: int, collected: Collected) -> None:
        number = self._table.get(row, "number")
        self._table.remove([row])
        self._accepted -= 1
        self._reject(number, collected, OLD)

    def _in_time(self, table: Table, ready: Sequence[int], count: int) -> list[int] | None:
        """The rows of a batch, in the order of arrival; the oldest where a step waits for those that would become too
        old: then of the groups of each version only as many are left as later steps can still take in time.
        """
        bound = self._settings.oldest
        if bound is None or self._settings.too_old == "drop":
            return first(table, ready, count)
        chosen = by_age("version")(table, ready, count)
        if chosen is None:
            return None
        left = [flown.begun for flown in self._flight.flown]
        left += [table.get(row, "version") for row in ready if row not in chosen]
        later = range(1, bound + 1)
        fits = all(sum(begun <= self._step - bound + k - 1 for begun in left) <= (k - 1) * count for k in later)
        return chosen if fits else None

    # Batches

    def _collected(self, rows: Sequence[int]) -> Collected:
        """What a step learns from, in the order of the groups' numbers, and what was rejected before it."""
        own = self._collecting
        order = sorted(rows, key=lambda row: int(self._table.get(row, "number")))
        found = [Collected.unpacked(self._table.get(row, "groups"), own.context.tasks) for row in order]
        spans = [self._table.get(row, "spans") for row in order]
        self._batch = [[self._table.get(row, "number"), spans] for row, spans in zip(order, spans, strict=True)]
        self._table.remove(rows)
        others, self._dropped = self._dropped, []
        groups = self._marked([group for item in (*found, *others) for group in item.groups])
        own.context.groups = groups
        stop_if_grading_fails(groups, own.max_grader_errors)
        kept = self._marked([group for item in found for group in item.kept])
        dropped = [one for item in (*found, *others) for one in item.dropped]
        if self._settings.filtered == "batch":
            own.memory["filters"], kept, more = filter_groups(own.filters, own.memory["filters"], kept)
            dropped += more
        ages = Staleness(spans=spans, step=self._step, eta=self._settings.eta).metrics()
        numbers = {
            "groups_running": float(len(self._flight.flown)),
            "groups_waiting": float(len(self._table)),
            "episodes_anew": float(self._flight.gate.anew),
        }
        self._flight.gate.anew = 0
        return Collected(groups=groups, kept=kept, dropped=dropped, metrics={**self._metrics, **ages, **numbers})

    def _marked(self, groups: list[Group]) -> list[Group]:
        own = self._collecting
        return with_span_rewards(with_spans(groups, own.tags, own.models), own.models)

    def _unpacked(self, pick: Sequence[Any]) -> Pick:
        key, weight, why = pick
        return Pick(task=self._tasks[key], weight=weight, reason=why)

    def _counter(self) -> int:
        return self._collecting.context.sampled_tokens(self._collecting.models)


class Replayed(Stream):
    """The stream of a journal: its pieces with the weights that it names, and its batches."""

    def __init__(self, collecting: Collecting, settings: Streams, journal: Mapping[int, Mapping[str, Any]]) -> None:
        """`journal` has an entry for each step, counted from 0."""
        super().__init__(collecting, settings)
        self._journal = without_given_up(journal)
        self._landed: dict[int, Flown] = {}

    def _wait(self) -> list[int]:
        """Rows of the batch of the journal."""
        if self._step not in self._journal:
            raise RunFailed(f"the journal ends before step {self._step + 1}: the run that wrote it was not finished")
        entry = self._journal[self._step]
        for number, key, *_ in entry["begun"]:
            if not self._picks:
                self._choose()
            pick = self._picks.pop(0)
            if (number, key) != (self._next, pick.task.key):
                raise RunFailed(
                    f"the journal begins group {number} with the task '{key}', and here group {self._next} is of "
                    f"'{pick.task.key}': tasks or seed are not those of its run"
                )
            self._begin(pick)
        while self._draws < entry["draws"]:
            self._choose()
        self._write({(number, name) for number, name, _ in entry["pieces"]})
        for number in entry["ended"]:
            if number not in self._landed:
                raise RunFailed(f"in step {self._step + 1} of the journal group {number} ends, and here it goes on")
            super()._arrive(self._landed.pop(number))
        for number, why in entry["left"]:
            if why == OLD:
                row = self._row(number)
                found = Collected.unpacked(self._table.get(row, "groups"), self._collecting.context.tasks)
                self._table_remove(row, replace(found, kept=[]))
        rows = [self._row(number) for number, _ in entry["batch"]]
        return self._table.take(LEARN, ("groups",), len(rows), lambda table, ready, count: rows)

    def _write(self, pieces: set[tuple[int, str]]) -> None:
        """Let these pieces be written, in any order of the rollouts' requests."""
        self._advance(lambda asked: False)
        while pieces:
            done = len(self._pieces)
            self._advance(pieces.__contains__)
            written = {(number, name) for number, name, _ in self._pieces[done:]}
            if not written:
                raise RunFailed(f"step {self._step + 1} of the journal has pieces that no group requests")
            pieces = pieces - written

    def _arrive(self, flown: Flown) -> None:
        """Keep it until all have ended, to take them in the order of the journal."""
        self._landed[flown.progress.number] = flown

    def _choose_ahead(self) -> None:
        """What the journal has as chosen is chosen."""

    def _beside(self) -> None:
        """Pieces that were written beside the learner have been written already, with the same weights."""

    def _row(self, number: int) -> int:
        for row in self._table.ready(LEARN, ("groups",)):
            if self._table.get(row, "number") == number:
                return row
        raise RunFailed(f"step {self._step + 1} of the journal learns from group {number}, which has not ended")


def _packed(pick: Pick) -> list[Any]:
    return [pick.task.key, pick.weight, pick.reason]
