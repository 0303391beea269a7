"""A run in progress: the order in which steps are recorded, evaluated and checkpointed.

At the end of every step numbers and rollouts are appended, the held-out tasks are answered if it is time, then a
checkpoint is written if one is due. A checkpoint holds the sizes of the files appended so far; a resumed run cuts
them back to those sizes and goes on, so that nothing is lost, doubled or different.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from posttrain.components.alarms import Action, Readings
from posttrain.components.environments import journaling
from posttrain.components.selections import Selection
from posttrain.components.timetables import Streams
from posttrain.engines import wait_for
from posttrain.errors import AlarmStop, Interrupted
from posttrain.evaluation.candidates import evaluate_candidates
from posttrain.evaluation.greedy import evaluate
from posttrain.evaluation.search import evaluate_search
from posttrain.runs.context import RunContext, StageRunContext, opening_events
from posttrain.runs.files import write_file
from posttrain.runs.limits import TimeLimit
from posttrain.runs.live import LiveView
from posttrain.runs.losses import Key, held_out_losses, sums_of
from posttrain.runs.moments import Moments
from posttrain.runs.snapshot import ROLLED_BACK, Snapshot, newest_snapshot, save_snapshot
from posttrain.runs.stop import StopRequest
from posttrain.runs.store import REPAIRS, RunStore
from posttrain.runs.tables import RolloutTable, rollout_rows
from posttrain.runs.tracking import Tracking
from posttrain.runs.watch import MOST_ROLL_BACKS, RollBack, StoppedByAlarm, Watch, wait_while_paused
from posttrain.stages import Models, Stage
from posttrain.stages.context import Result
from posttrain.stages.record import StepRecord
from posttrain.types import Group

if TYPE_CHECKING:
    from posttrain.engines import Server
    from posttrain.training.learner import Learner

_ALARMS = "alarms"
"""Key of the alarms' state in a checkpoint, next to that of the stage's own parts."""
_SELECTION = "selection"
"""Key of the observations that a stage's tasks were selected by."""


class Run:
    """One execution of a recipe, new or continued."""

    def __init__(
        self,
        context: RunContext,
        store: RunStore,
        view: LiveView,
        most_steps: int | None = None,
        limit: TimeLimit | None = None,
        trackers: Tracking | None = None,
        replayed: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """`store` is where it is recorded; a checkpoint found there is continued from.

        `most_steps` ends each stage early; None runs all steps. A run that reaches its `limit` stops as on Ctrl-C.
        `trackers` get what was recorded. `replayed` is the journal of a run to compute again.
        """
        self.replayed = replayed
        self.limit = limit
        self.context, self.recipe, self.store, self.view = context, context.recipe, store, view
        self.most_steps = most_steps
        self.trackers = trackers or Tracking((), store, view)
        self.step = 0
        self.roll_backs = 0
        """Number of roll-backs by alarms; later draws depend on it."""
        self.evaluations: list[dict[str, Any]] = []
        """Summaries of the held-out evaluations so far."""
        self.sampled = Counter[str]()
        """Sampled tokens by stage."""
        self.stop = StopRequest()
        self._saved_at = time.monotonic()
        context.keep_answers(store.folder)
        self._shown_events = len(store.history())

    def execute(self, models: Models) -> Models:
        """Run every stage that is left; returns the final models. Raises `Interrupted` after a safe stop.

        `models` are the initial models of the recipe; those of a checkpoint replace them.
        """
        snapshot = newest_snapshot(self.store, self.context) or Snapshot(models=models)
        with self.stop.listening(), journaling(self.store.episodes):
            while True:
                try:
                    return self._continue(snapshot)
                except RollBack as alarm:
                    snapshot = self._roll_back(str(alarm))

    def _continue(self, snapshot: Snapshot) -> Models:
        """Run every remaining stage after a snapshot."""
        self.store.rewind(snapshot.position)
        self.trackers.go_on(snapshot.step)
        self._show_repairs()
        self.step, self.roll_backs = snapshot.step, snapshot.roll_backs
        self.evaluations = self.store.evaluations()
        self.sampled = Counter[str]()
        for entry in self.store.metrics():
            self.sampled[entry["stage"]] += entry.get("sampled_tokens") or 0
        models, self.moments = snapshot.models, Moments(self.recipe.stages, snapshot.learners)
        self.context.each_note(self.note)
        if not snapshot.resumed:
            for kind, message in opening_events(self.context, self.store):
                self.store.log_event(0, kind, message)
            self.evaluate(models, "before")
        for place, (name, stage) in enumerate(self.recipe.stages.items()):
            if place < snapshot.stage:
                continue
            continued = snapshot if snapshot.steps_done and place == snapshot.stage else Snapshot.empty()
            models = self.context.with_copies(stage, models, keep=frozenset(continued.models))
            models = self._run_stage(models, StageRun(self, name, stage, place, continued, models), stage)
            self.evaluate(models, name)
            self.save(models, stage=place + 1, learners=self.moments.states(place + 1))
        return models

    def _show_repairs(self) -> None:
        """Show faults of checkpoints and record that were repaired, from the history."""
        history = self.store.history()
        for entry in history[self._shown_events :]:
            if entry["kind"] in REPAIRS:
                self.view.event(entry["kind"], entry["message"])
        self._shown_events = len(history)

    def _roll_back(self, reason: str) -> Snapshot:
        """The newest snapshot from before the alarm. The roll-back is in the history, which is never truncated."""
        self.store.episodes.go_back()
        self.store.log_history(ROLLED_BACK, f"after step {self.step}: {reason}", step=self.step)
        snapshot = newest_snapshot(self.store, self.context) or Snapshot(
            models=self.context.first_models(), roll_backs=self.roll_backs + 1
        )
        self.view.event(ROLLED_BACK, f"from step {self.step} to step {snapshot.step}: {reason}")
        return snapshot

    def _run_stage(self, models: Models, stage_run: "StageRun", stage: Stage) -> Models:
        """Run one stage. An alarm that stops it is recorded, with the scored groups of the step in progress."""
        if not stage_run.tasks:
            self.note(f"stage {stage_run.name} is left out, since no task was selected for it")
            return models
        try:
            models = stage.run(models, stage_run)
            self.moments.take(stage_run.learners, stage_run.place)
            return models
        except StoppedByAlarm:
            raise  # after a step: it is in the record
        except AlarmStop as alarm:
            stage_run.record_unfinished_groups()
            self.store.log_event(self.step, "alarm", str(alarm))
            raise

    def note(self, message: str) -> None:
        """Record and show a note."""
        self.store.log_event(self.step, "note", message)
        self.view.event("note", message)

    def evaluate(self, models: Models, name: str) -> None:
        """Measure what the recipe measures on the held-out tasks, and record the results."""
        began = time.monotonic()
        problems, settings = self.context.problems, self.recipe.evaluation
        if not problems.held_out:
            return
        unscored = {"accuracy": None, "accuracy_interval": None, "tasks": 0, "correct": 0, "errors": 0}
        summary: dict[str, Any] = {"name": name, "step": self.step, **unscored, "verifier": None}
        rows = given = None
        if problems.answered:
            server, verifier = self.context.server(models["policy"]), problems.verifier
            how = (problems.held_out, verifier, settings, problems.sampling, problems.rollout)
            with journaling(self.store.episodes.of(f"{self.step} {name}")):
                evaluated = evaluate(server, *how, self._helpers(models))
            summary |= {**evaluated.summary, "verifier": verifier.kind, **self._searched(models)}
            if settings.candidates is not None:
                greedy = [t for t in evaluated.trajectories if t.sample == 0]
                per, correct_at = settings.candidates, settings.correct_at
                of_given = evaluate_candidates(
                    server, problems.held_out, verifier, per=per, correct_at=correct_at, written=greedy
                )
                summary["candidates"] = of_given.summary
            rows = rollout_rows(evaluated.trajectories)
        if problems.losses:
            losses = held_out_losses(models["policy"], problems.losses, problems.held_out, self._first_sums())
            summary |= losses.summary
            given = rollout_rows(losses.trajectories, columns=losses.columns)
        self.evaluations.append(summary)
        self.store.write_evaluation(self.step, name, rows, summary, given)
        self.store.log_timing(self.step, name, 0, {"seconds_evaluate": time.monotonic() - began})
        self.view.evaluation(name, summary)
        self.trackers.evaluation(len(self.evaluations), summary)

    def _helpers(self, models: Models) -> dict[str, "Server"]:
        """Servers of the other models that held-out tasks are answered with; the policy's for one that is not there."""
        rollout = self.context.problems.rollout
        roles = sorted(rollout.helpers) if rollout is not None else []
        for role in (role for role in roles if role not in models):
            self.store.log_event(self.step, "note", f"there is no '{role}' so far; the policy answers in its place")
        return {role: self.context.server(models.get(role, models["policy"])) for role in roles}

    def _first_sums(self) -> dict[Key, float]:
        """Sums of nats of the held-out texts in the evaluation before the first step; empty where there is none."""
        if not self.evaluations or self.evaluations[0]["step"] != 0 or 0 not in self.store.evaluation_steps():
            return {}
        return sums_of(self.store.given_rows(0, self.evaluations[0]["name"], ["task_key", "sample", "trained_logp"]))

    def _searched(self, models: Models) -> dict[str, Any]:
        """The summary of answers by search, if the recipe has a search and its models exist."""
        search = self.recipe.evaluation.search
        if search is None:
            return {}
        missing = sorted(search.roles - models.keys())
        if missing:
            self.store.log_event(self.step, "note", f"no answers by search yet: there is no '{missing[0]}' so far")
            return {}
        servers = {role: self.context.server(models[role]) for role in search.roles}
        problems, correct_at = self.context.problems, self.recipe.evaluation.correct_at
        return {"searched": evaluate_search(servers, problems.held_out, problems.verifier, search, correct_at).summary}

    def save(self, models: Models, *, stage: int, **state: Any) -> None:
        """Write a checkpoint from which `execute` continues in the given stage."""
        save_snapshot(self.store, self.recipe, models, step=self.step, stage=stage, roll_backs=self.roll_backs, **state)
        self._saved_at = time.monotonic()

    def on_schedule(self) -> bool:
        """Whether a checkpoint after this step is due by the number of steps alone."""
        every = self.recipe.checkpoints.every_steps
        return bool(every and self.step % every == 0)

    def checkpoint_due(self) -> bool:
        """Whether enough steps or seconds have passed since the last one."""
        return self.on_schedule() or (time.monotonic() - self._saved_at >= self.recipe.checkpoints.every_seconds)


class StageRun(StageRunContext):
    """The context of a stage in a run."""

    def __init__(self, run: Run, name: str, stage: Stage, place: int, continued: Snapshot, models: Models) -> None:
        """`continued` is the snapshot to continue from, or an empty one; `models` are the stage's initial models."""
        super().__init__(run.context, name, stage, draw=run.roll_backs)
        self._run, self._continued, self.place = run, continued, place
        self.learners: Mapping[str, Learner] = {}
        """Those of the stage, once it has begun."""
        self.steps_done = continued.steps_done
        self.memory: dict[str, Any] = {k: x for k, x in continued.memory.items() if k not in (_ALARMS, _SELECTION)}
        self._observed = continued.memory.get(_SELECTION)
        if stage.selection is not None:
            self._select(stage, stage.selection, models)
        for note in stage.notes(self.tasks) if self.tasks and not self.memory else ():
            run.note(f"stage {name}: {note}")
        self._total_steps = stage.total_steps(self.tasks) if self.tasks else 0
        self._watch = Watch(run.recipe.alarms, continued.memory.get(_ALARMS))
        self.groups: Sequence[Group] = ()
        """Scored groups of the step in progress, recorded if an alarm stops the run in that step."""
        self._seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def _select(self, stage: Stage, selection: Selection, models: Models) -> None:
        """Keep the selected tasks; a continued stage uses the observations from its start."""
        fresh = self._observed is None
        if fresh:
            self._observed = wait_for(selection.measure(self.tasks, self.samplers(models, "selection")))
        chosen = selection.choose(self.tasks, self._observed)
        self.tasks = list(chosen.tasks)
        if fresh:
            self._run.note(f"stage {self.name}: {chosen.summary}")
        if self.tasks:
            self._run.view.plan(self.name, stage.total_steps(self.tasks))

    def goes_on(self, steps_done: int) -> bool:
        """Whether the stage has a further step: fewer than the run's most are done, and it has not spent the budget."""
        run, budget = self._run, self._run.recipe.budget
        if run.most_steps is not None and steps_done >= run.most_steps:
            return False
        return budget is None or not run.sampled[self.name] or run.sampled.total() < budget

    def restore(self, learners: "Mapping[str, Learner]") -> None:
        """Restore the learners from the checkpoint, if the stage is continued, and give them the run's processes."""
        self.learners = learners
        for learner in learners.values():
            learner.workers = self._context.session.workers(learner)
        if not self.steps_done:
            self._run.moments.give(learners, self.name)
        for role in learners.keys() & self._continued.learners.keys():
            learners[role].load_state(*self._continued.learners[role])

    @property
    def ahead(self) -> int:
        """Steps that rollouts are sampled ahead."""
        return self.recipe.schedule.ahead

    @property
    def streams(self) -> Streams | None:
        """How rollouts go on over changes of the weights."""
        return self.recipe.schedule.streams

    @property
    def replayed(self) -> Mapping[int, Mapping[str, Any]] | None:
        """The journal of the run that is computed again."""
        if self._run.replayed is None:
            return None
        own = [entry for entry in self._run.replayed if entry["stage"] == self.name]
        return {entry["stage_step"] - 1: entry for entry in own}

    def journal(self, entry: Mapping[str, Any]) -> None:
        """Write what a step was sampled from into ``stream.jsonl``."""
        self._run.store.log_stream(self._run.step + 1, self.name, entry)

    def beside(self, models: Models, work: Callable[[], Result]) -> Callable[[], Result]:
        """Begin work that samples, beside what learns."""
        return self._context.session.beside([policy for policy in models.values() if policy.writes], work)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds inside towards a phase of the step."""
        began = time.monotonic()
        yield
        self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - began

    def record_unfinished_groups(self) -> None:
        """Record the rollouts of a step that was not finished. A resumed run repeats the step."""
        record = StepRecord()
        for index, group in enumerate(self.groups):
            record.drop(group, "the run stopped in this step", index=index)
        if record.rows:
            self._run.store.write_rollouts(self._run.step + 1, self._table(record))

    def finish_step(
        self,
        steps_done: int,
        record: StepRecord,
        memory: Mapping[str, Any],
        learners: "Mapping[str, Learner]",
        models: Models,
    ) -> None:
        """Record a complete step, and save a checkpoint if one is due. Raises `Interrupted` on a request to stop."""
        run = self._run
        run.step += 1
        run.sampled[self.name] += round(record.metrics.get("sampled_tokens", 0.0))
        self.groups = ()
        run.store.log_metrics(run.step, self.name, steps_done, record.metrics)
        if record.rows:
            run.store.write_rollouts(run.step, self._table(record))
        timing = self._timing(record) | dict(self._context.session.take_timing())
        self._context.each_note(run.note)
        run.store.log_timing(run.step, self.name, steps_done, timing)
        numbers = {"step": run.step, "stage": self.name, "stage_step": steps_done, **record.metrics}
        run.view.step(numbers, timing)
        run.trackers.step(numbers, timing)
        last = steps_done == self._total_steps or not self.goes_on(steps_done)
        if run.limit is not None and run.limit.reached() and not run.stop.requested:
            run.stop.reason = run.limit.reason
        evaluation = self.recipe.evaluation
        due = steps_done == evaluation.early or (evaluation.every and steps_done % evaluation.every == 0)
        if due and not last:
            began = time.monotonic()
            run.evaluate(models, f"{self.name} step {steps_done}")
            self._began += time.monotonic() - began  # it has a line of timing of its own
        news, action = self._alarms(record)

        def save() -> None:
            self.store()
            run.save(
                models,
                stage=self.place,
                steps_done=steps_done,
                memory={**memory, _ALARMS: self._watch.state(), **self._selected_by()},
                learners={role: learner.state(copied=False) for role, learner in learners.items()}
                | run.moments.states(self.place + 1),
                # The checkpoint of a roll-back decides the result, so it cannot be one that a clock or a Ctrl-C caused.
                healthy=self._watch.healthy and run.on_schedule(),
            )

        if action == "roll_back":
            raise RollBack(news)
        due = run.checkpoint_due() or self._is_last_but_one(steps_done)
        if run.stop.requested or action in ("pause", "stop") or (due and not last):
            save()
        go_on = f"everything is saved. Go on with: posttrain resume {run.store.folder}"
        if action == "stop":
            raise StoppedByAlarm(f"stopped after step {run.step}: {news}; {go_on}")
        if action == "pause":
            self._pause(news)
        if run.stop.requested:
            raise Interrupted(f"stopped after step {run.step} ({run.stop.reason}); {go_on}")

    def _is_last_but_one(self, steps_done: int) -> bool:
        """Whether one step of the run is left: a run that gets more steps after its end continues from here."""
        return self.place == len(self.recipe.stages) - 1 and steps_done == self._total_steps - 1

    def _selected_by(self) -> dict[str, Any]:
        """The observations that tasks were selected by, for the checkpoint."""
        return {} if self._observed is None else {_SELECTION: self._observed}

    def _alarms(self, record: StepRecord) -> tuple[str, Action]:
        """Check the alarms after a step, and record new ones. Returns their messages, and the action."""
        run = self._run
        news = self._watch.look(Readings(metrics=record.metrics, evaluations=run.evaluations, step=run.step))
        for name, message in news.items():
            run.store.log_event(run.step, "alarm", f"{name}: {message}", alarm=name, stage=self.name)
            run.view.event("alarm", f"{name}: {message}")
        action = self._watch.action(list(news))
        messages = "; ".join(f"{name}: {message}" for name, message in news.items())
        if action == "roll_back" and run.roll_backs >= MOST_ROLL_BACKS:
            return f"{messages} (after {run.roll_backs} roll-backs)", "stop"
        return messages, action

    def _pause(self, news: str) -> None:
        """Wait until the user removes the file."""
        run, file = self._run, self._run.store.folder / "paused"
        write_file(file, f"{news}\nRemove this file to go on.\n")
        run.view.event("paused", f"{news}. Remove {file} to go on, or press Ctrl-C to stop")
        wait_while_paused(file, run.stop)

    def _table(self, record: StepRecord) -> RolloutTable:
        """The table of a step's trajectories, in the order of their groups."""
        rows = sorted(record.rows, key=lambda row: (row.group, row.trajectory.sample))
        return rollout_rows(
            [row.trajectory for row in rows],
            stage=self.name,
            groups=[row.group for row in rows],
            dropped=[row.dropped for row in rows],
            columns=[row.columns for row in rows],
        )

    def _timing(self, record: StepRecord) -> dict[str, float]:
        """Seconds by phase, speed and memory of the step that ends now; starts the next one's clock."""
        from posttrain.kernels.memory import peak_memory

        now = time.monotonic()
        timing = {f"seconds_{name}": seconds for name, seconds in self._seconds.items()}
        timing["seconds_total"] = now - self._began
        sampling = self._seconds.get("sample", 0.0)
        if sampling and "sampled_tokens" in record.metrics:
            timing["tokens_per_second"] = record.metrics["sampled_tokens"] / sampling
        elif record.computed_tokens:
            timing["tokens_per_second"] = record.computed_tokens / max(timing["seconds_total"], 1e-9)
        if record.computed_tokens:
            timing["computed_tokens"] = float(record.computed_tokens)
        timing["peak_memory_bytes"] = float(peak_memory())
        self._seconds, self._began = {}, now
        return timing
