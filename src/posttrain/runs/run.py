"""A run in progress: the order in which steps are recorded, evaluated and checkpointed.

At the end of every step numbers and rollouts are appended, the held-out tasks are answered if it is time, then a
checkpoint is written if one is due. A checkpoint holds the sizes of the files appended so far; a resumed run cuts
them back to those sizes and goes on, so that nothing is lost, doubled or different.
"""

import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from posttrain.components.alarms import Action, Readings
from posttrain.components.selections import Selection
from posttrain.engines import wait_for
from posttrain.errors import AlarmStop, Interrupted
from posttrain.evaluation.greedy import evaluate
from posttrain.evaluation.search import evaluate_search
from posttrain.runs.bench import Bench, StageBench
from posttrain.runs.files import write_file
from posttrain.runs.live import LiveView
from posttrain.runs.snapshot import ROLLED_BACK, Snapshot, newest_snapshot, save_snapshot
from posttrain.runs.stop import StopRequest
from posttrain.runs.store import REPAIRS, RunStore
from posttrain.runs.tables import RolloutTable, rollout_rows
from posttrain.runs.watch import MOST_ROLL_BACKS, RollBack, StoppedByAlarm, Watch, wait_while_paused
from posttrain.stages import Models, Stage
from posttrain.stages.record import StepRecord
from posttrain.types import Group

if TYPE_CHECKING:
    from posttrain.training.learner import Learner

_ALARMS = "alarms"
"""Where the memory of a stage's alarms stands in a checkpoint, beside that of the stage's own parts."""
_SELECTION = "selection"
"""Where what a stage's tasks were selected by stands there."""


class Run:
    """One execution of a recipe, new or continued."""

    def __init__(self, bench: Bench, store: RunStore, view: LiveView) -> None:
        """`store` is where it is recorded; a checkpoint found there is continued from."""
        self.bench, self.recipe, self.store, self.view = bench, bench.recipe, store, view
        self.step = 0
        self.roll_backs = 0
        """Times that an alarm made it go back; the draws that follow differ by it."""
        self.evaluations: list[dict[str, Any]] = []
        """Summaries of the held-out evaluations until now."""
        self.stop = StopRequest()
        self._saved_at = time.monotonic()
        bench.keep_answers(store.folder)
        self._told = len(store.history())

    def execute(self, models: Models) -> Models:
        """Run every stage that is left; returns the final models. Raises `Interrupted` after a safe stop.

        `models` are those that the recipe begins with; a checkpoint's take their place.
        """
        snapshot = newest_snapshot(self.store, self.bench) or Snapshot(models=models)
        with self.stop.listening():
            while True:
                try:
                    return self._go_on(snapshot)
                except RollBack as alarm:
                    snapshot = self._roll_back(str(alarm))

    def _go_on(self, snapshot: Snapshot) -> Models:
        """Run every stage that is left after a snapshot."""
        self.store.rewind(snapshot.position)
        self._tell_repairs()
        self.step, self.roll_backs = snapshot.step, snapshot.roll_backs
        self.evaluations = self.store.evaluations()
        models = snapshot.models
        if not snapshot.resumed:
            for note in self.bench.problems.notes:
                self.store.log_event(0, "note", note)
            self.evaluate(models, "before")
        for place, (name, stage) in enumerate(self.recipe.stages.items()):
            if place < snapshot.stage:
                continue
            continued = snapshot if snapshot.steps_done and place == snapshot.stage else Snapshot.empty()
            models = self.bench.with_copies(stage, models, keep=frozenset(continued.models))
            models = self._run_stage(models, StageRun(self, name, stage, place, continued, models), stage)
            self.evaluate(models, name)
            self.save(models, stage=place + 1)
        return models

    def _tell_repairs(self) -> None:
        """Show what was found wrong with checkpoints and record, and what was done about it; all is in the history."""
        history = self.store.history()
        for entry in history[self._told :]:
            if entry["kind"] in REPAIRS:
                self.view.event(entry["kind"], entry["message"])
        self._told = len(history)

    def _roll_back(self, reason: str) -> Snapshot:
        """The newest snapshot from before the trouble. That it was gone back to is in the history, which is not cut."""
        self.store.log_history(ROLLED_BACK, f"after step {self.step}: {reason}", step=self.step)
        snapshot = newest_snapshot(self.store, self.bench) or Snapshot(
            models=self.bench.first_models(), roll_backs=self.roll_backs + 1
        )
        self.view.event(ROLLED_BACK, f"from step {self.step} to step {snapshot.step}: {reason}")
        return snapshot

    def _run_stage(self, models: Models, stage_run: "StageRun", stage: Stage) -> Models:
        """Run one stage; an alarm that stops it goes into the record, with what was being judged and learned from."""
        if not stage_run.tasks:
            self.note(f"stage {stage_run.name} is left out, since no task was selected for it")
            return models
        try:
            return stage.run(models, stage_run)
        except StoppedByAlarm:
            raise  # after a step: it is in the record
        except AlarmStop as alarm:
            stage_run.record_attempts()
            self.store.log_event(self.step, "alarm", str(alarm))
            raise

    def note(self, message: str) -> None:
        """Record and show something that a user should know."""
        self.store.log_event(self.step, "note", message)
        self.view.event("note", message)

    def evaluate(self, models: Models, name: str) -> None:
        """Answer the held-out tasks and record how it went."""
        began = time.monotonic()
        problems = self.bench.problems
        server, verifier = self.bench.server(models["policy"]), problems.verifier
        settings, sampling, rollout = self.recipe.evaluation, problems.sampling, problems.rollout
        evaluated = evaluate(server, problems.held_out, verifier, settings, sampling, rollout)
        summary = {"name": name, "step": self.step, **evaluated.summary, "verifier": verifier.kind}
        self.evaluations.append(summary)
        rows = rollout_rows(evaluated.trajectories)
        summary |= self._searched(models)
        self.store.write_evaluation(self.step, name, rows, summary)
        self.store.log_timing(self.step, name, 0, {"seconds_evaluate": time.monotonic() - began})
        self.view.evaluation(name, summary)

    def _searched(self, models: Models) -> dict[str, Any]:
        """How the held-out tasks were answered by search, where the recipe asks for it and its models are there."""
        search = self.recipe.evaluation.search
        if search is None:
            return {}
        missing = sorted(search.roles - models.keys())
        if missing:
            self.store.log_event(self.step, "note", f"no answers by search yet: there is no '{missing[0]}' so far")
            return {}
        servers = {role: self.bench.server(models[role]) for role in search.roles}
        problems, correct_at = self.bench.problems, self.recipe.evaluation.correct_at
        return {"searched": evaluate_search(servers, problems.held_out, problems.verifier, search, correct_at).summary}

    def save(self, models: Models, *, stage: int, **state: Any) -> None:
        """Write a checkpoint from which `execute` continues in the given stage."""
        save_snapshot(self.store, self.recipe, models, step=self.step, stage=stage, roll_backs=self.roll_backs, **state)
        self._saved_at = time.monotonic()

    def on_schedule(self) -> bool:
        """Whether a checkpoint after this step is due by the number of steps, whatever the clock says."""
        every = self.recipe.checkpoints.every_steps
        return bool(every and self.step % every == 0)

    def checkpoint_due(self) -> bool:
        """Whether enough steps or seconds have passed since the last one."""
        return self.on_schedule() or (time.monotonic() - self._saved_at >= self.recipe.checkpoints.every_seconds)


class StageRun(StageBench):
    """What one stage sees of its run."""

    def __init__(self, run: Run, name: str, stage: Stage, place: int, continued: Snapshot, models: Models) -> None:
        """`continued` holds the state to go on from, or nothing; `models` are those that the stage finds."""
        super().__init__(run.bench, name, stage, draw=run.roll_backs)
        self._run, self._continued, self._place = run, continued, place
        self.steps_done = continued.steps_done
        own = {name: part for name, part in continued.memory.items() if name not in (_ALARMS, _SELECTION)}
        self.memory: dict[str, Any] = own
        self._seen = continued.memory.get(_SELECTION)
        if stage.selection is not None:
            self._select(stage, stage.selection, models)
        self._total_steps = stage.total_steps(self.tasks) if self.tasks else 0
        self._watch = Watch(run.recipe.alarms, continued.memory.get(_ALARMS))
        self.attempts: Sequence[Group] = ()
        """Judged groups of the step in progress: the evidence, should an alarm stop it."""
        self._seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def _select(self, stage: Stage, selection: Selection, models: Models) -> None:
        """Leave the tasks that are selected: by what was seen when the stage began, if it is being continued."""
        fresh = self._seen is None
        if fresh:
            self._seen = wait_for(selection.look(self.tasks, self.samplers(models, "selection")))
        chosen = selection.choose(self.tasks, self._seen)
        self.tasks = list(chosen.tasks)
        if fresh:
            self._run.note(f"stage {self.name}: {chosen.said}")
        if self.tasks:
            self._run.view.plan(self.name, stage.total_steps(self.tasks))

    def restore(self, learners: "Mapping[str, Learner]") -> None:
        """Put the learners back into the state of the checkpoint, if the stage is being continued."""
        for role, (numbers, tensors) in self._continued.learners.items():
            learners[role].load_state(numbers, tensors)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds inside towards a phase of the step."""
        began = time.monotonic()
        yield
        self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - began

    def record_attempts(self) -> None:
        """Record the attempts of a step that was not finished; a resumed run does the step again."""
        record = StepRecord()
        for index, group in enumerate(self.attempts):
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
        """Record a step that is complete, and make it safe if it is time. Raises `Interrupted` if asked to stop."""
        run = self._run
        run.step += 1
        self.attempts = ()
        run.store.log_metrics(run.step, self.name, steps_done, record.metrics)
        if record.rows:
            run.store.write_rollouts(run.step, self._table(record))
        timing = self._timing(record)
        run.store.log_timing(run.step, self.name, steps_done, timing)
        run.view.step({"step": run.step, "stage": self.name, "stage_step": steps_done, **record.metrics}, timing)
        last = steps_done == self._total_steps
        every = self.recipe.evaluation.every
        if every and steps_done % every == 0 and not last:
            run.evaluate(models, f"{self.name} step {steps_done}")
        news, action = self._alarms(record)

        def save() -> None:
            run.save(
                models,
                stage=self._place,
                steps_done=steps_done,
                memory={**memory, _ALARMS: self._watch.state(), **self._selected_by()},
                learners={role: learner.state() for role, learner in learners.items()},
                # What alarms go back to decides the result, so it cannot be what a clock or a Ctrl-C happened to save.
                healthy=self._watch.healthy and run.on_schedule(),
            )

        if action == "roll_back":
            raise RollBack(news)
        if run.stop.requested or action in ("pause", "stop") or (run.checkpoint_due() and not last):
            save()
        go_on = f"everything is saved. Go on with: posttrain resume {run.store.folder}"
        if action == "stop":
            raise StoppedByAlarm(f"stopped after step {run.step}: {news}; {go_on}")
        if action == "pause":
            self._pause(news)
        if run.stop.requested:
            raise Interrupted(f"stopped after step {run.step} ({run.stop.reason}); {go_on}")

    def _selected_by(self) -> dict[str, Any]:
        """What the stage's tasks were selected by, for the checkpoint."""
        return {} if self._seen is None else {_SELECTION: self._seen}

    def _alarms(self, record: StepRecord) -> tuple[str, Action]:
        """Look for trouble after a step; what is new goes into the record. Returns it in words, and what to do."""
        run = self._run
        news = self._watch.look(Readings(metrics=record.metrics, evaluations=run.evaluations))
        for name, said in news.items():
            run.store.log_event(run.step, "alarm", f"{name}: {said}", alarm=name, stage=self.name)
            run.view.event("alarm", f"{name}: {said}")
        action = self._watch.action(list(news))
        told = "; ".join(f"{name}: {said}" for name, said in news.items())
        if action == "roll_back" and run.roll_backs >= MOST_ROLL_BACKS:
            return f"{told} (after {run.roll_backs} roll-backs)", "stop"
        return told, action

    def _pause(self, news: str) -> None:
        """Wait until somebody has looked."""
        run, file = self._run, self._run.store.folder / "paused"
        write_file(file, f"{news}\nRemove this file to go on.\n")
        run.view.event("paused", f"{news}. Remove {file} to go on, or press Ctrl-C to stop")
        wait_while_paused(file, run.stop)

    def _table(self, record: StepRecord) -> RolloutTable:
        """The trajectories of a step as they are written, in the order of their groups."""
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
        now = time.monotonic()
        timing = {f"seconds_{name}": seconds for name, seconds in self._seconds.items()}
        timing["seconds_total"] = now - self._began
        sampling = self._seconds.get("sample", 0.0)
        if sampling and "sampled_tokens" in record.metrics:
            timing["tokens_per_second"] = record.metrics["sampled_tokens"] / sampling
        elif "trained_tokens" in record.metrics:
            timing["tokens_per_second"] = record.metrics["trained_tokens"] / max(timing["seconds_total"], 1e-9)
        timing["peak_memory_bytes"] = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        self._seconds, self._began = {}, now
        return timing
