"""Scores probes with a reward and reports findings."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from posttrain.audit import Probe, Subject, gold_of, kinds, kinds_for, probes_of
from posttrain.components.rewards import Gold, Reward
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.errors.temporary import temporary_folder
from posttrain.grading.isolated import Isolated
from posttrain.grading.workers import Limits, Outcome
from posttrain.types import Score, Segment, Task, Trajectory

Fault = Literal["false positive", "false negative", "error", "not deterministic", "code was run"]
Golds = Sequence[tuple[Task, Gold]]
WALL_PER_CPU_SECOND = 12.0
"""Limit of wall-clock time per second of the limit of processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of an audit."""

    form: str = "{answer}"
    about: Literal["answer", "form"] = "answer"
    """What the reward scores. A reward for format need not distinguish correct from incorrect answers."""
    skip: Sequence[str] = ()
    """Kinds of probes to leave out."""
    cpu_seconds: float = 5.0
    """Processor time for scoring one probe; the limit of wall-clock time is twelve times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault of the reward that a probe shows."""

    fault: Fault
    kind: str
    probe: str
    task: str
    completion: str
    """Shortened."""
    value: float | None
    explanation: str


@dataclass(frozen=True, slots=True)
class Scored:
    """A probe with its score."""

    kind: str
    probe: Probe
    task: Task
    score: Score
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Findings and counts of an audit."""

    findings: tuple[Finding, ...]
    kinds: Mapping[str, Mapping[str, float]]
    """By kind: ``probes``, ``rewarded``, ``errors``, ``mean`` value, and ``slowest`` in seconds of processor time."""

    @property
    def clean(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    def with_findings(self, kind: str, findings: Sequence[Finding], counts: Mapping[str, float]) -> "Report":
        """The report with the findings and counts of another kind."""
        return Report(findings=(*self.findings, *findings), kinds={**self.kinds, kind: counts})

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON value."""
        return {"clean": self.clean, "findings": [asdict(finding) for finding in self.findings], "kinds": self.kinds}


def audit(reward: Reward, tasks: Sequence[Task], settings: Settings | None = None) -> Report:
    """Score the probes of tasks with answers. Raises `UserError` for a reward or tasks that cannot be audited."""
    settings = settings or Settings()
    if reward.roles:
        raise UserError(
            f"this reward scores with models ({', '.join(sorted(reward.roles))}), and an audit loads none; "
            "audit a reward that needs no model"
        )
    unknown = [kind for kind in settings.skip if kind not in kinds()]
    if unknown or "{answer}" not in settings.form:
        what = f"no kind of probe '{unknown[0]}'; known: {', '.join(kinds())}" if unknown else "no {answer} in the form"
        raise UserError(what)
    golds = golds_of(reward, tasks, settings.form)
    if not golds:
        raise UserError("an audit needs tasks with answers, and none of the tasks has one; give others as tasks=TASKS")
    reward.prepare()
    limits = Limits(cpu_seconds=settings.cpu_seconds, wall_seconds=WALL_PER_CPU_SECOND * settings.cpu_seconds)
    with temporary_folder("audit") as folder:
        canary = folder / "canary"
        return wait_for(
            _audit(
                Isolated(reward, limits, preload=getattr(reward, "libraries", ())), golds, settings, canary, reward.runs
            )
        )


def golds_of(reward: Reward, tasks: Sequence[Task], form: str) -> list[tuple[Task, Gold]]:
    """Each task that has an answer, with the answer in its layout: that of the reward, unless `form` is another."""
    found = []
    for task in tasks:
        own = reward.gold(task) if form == "{answer}" and not reward.runs else None
        own = own or Gold(answer=gold_of(task, reward.runs), form=form)
        found += [(task, own)] if own.answer else []
    return found


async def _audit(grader: Isolated, golds: Golds, settings: Settings, canary: Path, language: str) -> Report:
    plan = _plan(golds, settings, canary, language)
    code = [entry for entry in plan if entry[0] == "hostile_code"]
    scored = await _score(grader, [entry for entry in plan if entry[0] != "hostile_code"])
    findings = []
    for entry in code:  # one by one, so that a canary identifies the probe that made it
        (item,) = await _score(grader, [entry])
        scored.append(item)
        if canary.exists():
            canary.unlink()
            findings.append(finding_of("code was run", item, item.score.explanation))
    best = max((j.score.value for j in scored if j.kind == "gold" and j.score.status == "ok"), default=np.inf)
    findings += [finding for item in scored for finding in _faults(item, best)]
    findings += await _nondeterministic(grader, scored)
    return Report(findings=tuple(findings), kinds=_counted(scored))


def _plan(golds: Golds, settings: Settings, canary: Path, language: str) -> list[tuple[str, Probe, Task]]:
    plan = []
    frequent = Counter(gold.answer for _, gold in golds).most_common(1)[0][0]
    for number, (task, gold) in enumerate(golds):
        others = [other.answer for _, other in golds if other is not gold]
        laid_out = gold.form != settings.form
        subject = Subject(
            task=task,
            form=gold.form,
            gold=gold.answer if laid_out else "",
            others=others[:3],
            frequent=frequent,
            first=number == 0,
            canary=str(canary),
            language=language,
        )
        for kind in kinds_for(language, task.fields):
            if kind not in settings.skip and not (laid_out and kind == "equivalent"):  # the layout has one notation
                form_only = settings.about == "form" or not gold.compared
                plan += [(kind, _fitted(probe, form_only, subject), task) for probe in probes_of(kind, subject)]
    return plan


def _fitted(probe: Probe, form_only: bool, subject: Subject) -> Probe:
    """The probe; any outcome is expected of a wrong answer in the right format if only the format is scored."""
    anything = form_only and probe.expected == "unrewarded" and (probe.of_answer or _is_blank(probe, subject))
    return Probe(**{**_fields(probe), "expected": "any"}) if anything else probe


def _is_blank(probe: Probe, subject: Subject) -> bool:
    """Whether a probe is the layout of the reward with nothing in it."""
    return bool(subject.gold) and "".join(probe.text.split()) == "".join(subject.written("").split())


def _fields(probe: Probe) -> dict[str, Any]:
    return {name: getattr(probe, name) for name in Probe.__slots__}


async def _score(grader: Isolated, plan: Sequence[tuple[str, Probe, Task]]) -> list[Scored]:
    outcomes = await grader.outcomes([rollout_of(probe, task) for _, probe, task in plan])
    return [Scored(kind, probe, task, *found) for (kind, probe, task), found in zip(plan, outcomes, strict=True)]


def rollout_of(probe: Probe, task: Task) -> Trajectory:
    """A probe as a rollout of a policy."""
    prompt = Subject(task=task).prompt_text
    written = np.frombuffer(probe.text.encode("utf-8", "replace")[:4096] or b"\n", np.uint8).astype(np.int64)
    return Trajectory(
        task=task,
        segments=(
            Segment(actor="prompt", token_ids=np.zeros(1, np.int64), text=prompt),
            Segment(actor="policy", token_ids=written, trained=True, text=probe.text),
        ),
        stop_reason=probe.stop_reason,
    )


def _faults(item: Scored, best: float) -> list[Finding]:
    """The findings about one scored probe."""
    score, probe = item.score, item.probe
    if score.status == "error":
        return [] if probe.may_fail else [finding_of("error", item, score.explanation)]
    rewarded = score.status == "ok" or score.value >= best
    if probe.expected == "rewarded" and score.status != "ok":
        return [finding_of("false negative", item, score.explanation)]
    if probe.expected == "unrewarded" and rewarded:
        return [finding_of("false positive", item, score.explanation)]
    return []


async def _nondeterministic(grader: Isolated, scored: Sequence[Scored]) -> list[Finding]:
    """Score the probes again in reverse order, without those that failed; findings where the score differs.

    A probe that may fail at its deadline may do so one time and not the other, since the deadline is in seconds.
    """
    again = [item for item in reversed(scored) if item.score.status != "error"]
    repeated = await _score(grader, [(item.kind, item.probe, item.task) for item in again])
    return [
        finding_of("not deterministic", before, f"first {_shown(before.score)}, then {_shown(after.score)}")
        for before, after in zip(again, repeated, strict=True)
        if (before.score.value, before.score.status) != (after.score.value, after.score.status)
        and not (before.probe.may_fail and after.score.status == "error")
    ]


def _shown(score: Score) -> str:
    return f"{score.status} {score.value:g}"


def finding_of(fault: Fault, item: Scored, explanation: str) -> Finding:
    """A fault of a scored probe, with its text shortened."""
    text = item.probe.text if len(item.probe.text) <= 120 else f"{item.probe.text[:117]}..."
    value = item.score.value if np.isfinite(item.score.value) else None
    return Finding(
        fault=fault,
        kind=item.kind,
        probe=item.probe.name,
        task=item.task.key,
        completion=json.dumps(text),
        value=value,
        explanation=explanation,
    )


def _counted(scored: Sequence[Scored]) -> dict[str, dict[str, float]]:
    counted = {}
    for kind in sorted({item.kind for item in scored}):
        own = [item for item in scored if item.kind == kind]
        values = [item.score.value for item in own if np.isfinite(item.score.value)]
        counted[kind] = {
            "probes": len(own),
            "rewarded": sum(item.score.status == "ok" for item in own),
            "errors": sum(item.score.status == "error" for item in own),
            "mean": float(np.mean(values)) if values else 0.0,
            "slowest": max(item.outcome.cpu_seconds for item in own),
        }
    return counted
