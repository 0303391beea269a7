"""Scores probes with a reward and reports findings."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from posttrain.audit import Probe, Subject, gold_of, kinds, kinds_for, probes_of
from posttrain.components.rewards import Reward
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.grading.isolated import Isolated
from posttrain.grading.workers import Limits, Outcome
from posttrain.types import Score, Segment, Task, Trajectory

Fault = Literal["false positive", "false negative", "error", "not deterministic", "code was run"]
ON_THE_CLOCK = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How an audit is made."""

    form: str = "{answer}"
    about: Literal["answer", "form"] = "answer"
    """What the reward judges. One for form is not asked to tell a right answer from a wrong one."""
    skip: Sequence[str] = ()
    """Kinds of probes to leave out."""
    cpu_seconds: float = 5.0
    """Processor time for one judgement, and on the clock twelve times that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not sound."""

    fault: Fault
    kind: str
    probe: str
    task: str
    completion: str
    """Shortened."""
    value: float | None
    explanation: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A probe with its judgement."""

    kind: str
    probe: Probe
    task: Task
    score: Score
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an audit found."""

    findings: tuple[Finding, ...]
    kinds: Mapping[str, Mapping[str, float]]
    """By kind: ``probes``, ``paid``, ``errors``, and ``slowest`` in seconds of processor time."""

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"clean": self.clean, "findings": [asdict(finding) for finding in self.findings], "kinds": self.kinds}


def audit(reward: Reward, tasks: Sequence[Task], settings: Settings | None = None) -> Report:
    """Try a reward on tasks with answers. Raises `UserError` for what cannot be audited."""
    settings = settings or Settings()
    if reward.roles:
        raise UserError(f"this reward asks models ({', '.join(sorted(reward.roles))}); an audit has none to ask")
    unknown = [kind for kind in settings.skip if kind not in kinds()]
    if unknown or "{answer}" not in settings.form:
        what = f"no kind of probe '{unknown[0]}'; known: {', '.join(kinds())}" if unknown else "no {answer} in the form"
        raise UserError(what)
    tasks = [task for task in tasks if gold_of(task, reward.runs)]
    if not tasks:
        raise UserError("an audit needs tasks with answers, and there are none")
    reward.prepare()
    limits = Limits(cpu_seconds=settings.cpu_seconds, wall_seconds=ON_THE_CLOCK * settings.cpu_seconds)
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "canary"
        return wait_for(
            _audit(
                Isolated(reward, limits, preload=getattr(reward, "libraries", ())), tasks, settings, canary, reward.runs
            )
        )


async def _audit(judge: Isolated, tasks: Sequence[Task], settings: Settings, canary: Path, language: str) -> Report:
    plan = _plan(tasks, settings, canary, language)
    code = [entry for entry in plan if entry[0] == "hostile_code"]
    judged = await _judge(judge, [entry for entry in plan if entry[0] != "hostile_code"])
    findings = []
    for entry in code:  # one after the other, so that a canary names the probe that made it
        (item,) = await _judge(judge, [entry])
        judged.append(item)
        if canary.exists():
            canary.unlink()
            findings.append(_finding("code was run", item, item.score.explanation))
    best = max((j.score.value for j in judged if j.kind == "gold" and j.score.status == "ok"), default=np.inf)
    findings += [finding for item in judged for finding in _faults(item, best)]
    findings += await _unsteady(judge, judged)
    return Report(findings=tuple(findings), kinds=_counted(judged))


def _plan(tasks: Sequence[Task], settings: Settings, canary: Path, language: str) -> list[tuple[str, Probe, Task]]:
    plan = []
    for number, task in enumerate(tasks):
        others = [gold_of(other, language) for other in tasks if other is not task]
        subject = Subject(
            task=task,
            form=settings.form,
            others=others[:3],
            first=number == 0,
            canary=str(canary),
            language=language,
        )
        for kind in kinds_for(language):
            if kind not in settings.skip:
                plan += [(kind, _fitted(probe, settings), task) for probe in probes_of(kind, subject)]
    return plan


def _fitted(probe: Probe, settings: Settings) -> Probe:
    """A reward for form may pay a wrong answer in the right form."""
    form_only = settings.about == "form" and probe.of_answer and probe.expected == "unpaid"
    return Probe(**{**_fields(probe), "expected": "any"}) if form_only else probe


def _fields(probe: Probe) -> dict[str, Any]:
    return {name: getattr(probe, name) for name in Probe.__slots__}


async def _judge(judge: Isolated, plan: Sequence[tuple[str, Probe, Task]]) -> list[Judged]:
    outcomes = await judge.outcomes([attempt(probe, task) for _, probe, task in plan])
    return [Judged(kind, probe, task, *found) for (kind, probe, task), found in zip(plan, outcomes, strict=True)]


def attempt(probe: Probe, task: Task) -> Trajectory:
    """A probe as if a policy had written it."""
    prompt = Subject(task=task).asked
    written = np.frombuffer(probe.text.encode("utf-8", "replace")[:4096] or b"\n", np.uint8).astype(np.int64)
    return Trajectory(
        task=task,
        segments=(
            Segment(actor="prompt", token_ids=np.zeros(1, np.int64), text=prompt),
            Segment(actor="policy", token_ids=written, trained=True, text=probe.text),
        ),
        stop_reason=probe.stop_reason,
    )


def _faults(item: Judged, best: float) -> list[Finding]:
    """What is wrong with one judgement."""
    score, probe = item.score, item.probe
    if score.status == "error":
        return [] if probe.may_fail else [_finding("error", item, score.explanation)]
    paid = score.status == "ok" or score.value >= best
    if probe.expected == "paid" and score.status != "ok":
        return [_finding("false negative", item, score.explanation)]
    if probe.expected == "unpaid" and paid:
        return [_finding("false positive", item, score.explanation)]
    return []


async def _unsteady(judge: Isolated, judged: Sequence[Judged]) -> list[Finding]:
    """Judge again, in another order, what was judged before; what could not be is not tried again.

    A probe that may fail at its deadline may do so at one time and not at another: the deadline is in seconds.
    """
    again = [item for item in reversed(judged) if item.score.status != "error"]
    repeated = await _judge(judge, [(item.kind, item.probe, item.task) for item in again])
    return [
        _finding("not deterministic", before, f"first {_said(before.score)}, then {_said(after.score)}")
        for before, after in zip(again, repeated, strict=True)
        if (before.score.value, before.score.status) != (after.score.value, after.score.status)
        and not (before.probe.may_fail and after.score.status == "error")
    ]


def _said(score: Score) -> str:
    return f"{score.status} {score.value:g}"


def _finding(fault: Fault, item: Judged, explanation: str) -> Finding:
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


def _counted(judged: Sequence[Judged]) -> dict[str, dict[str, float]]:
    counted = {}
    for kind in sorted({item.kind for item in judged}):
        own = [item for item in judged if item.kind == kind]
        counted[kind] = {
            "probes": len(own),
            "paid": sum(item.score.status == "ok" for item in own),
            "errors": sum(item.score.status == "error" for item in own),
            "slowest": max(item.outcome.cpu_seconds for item in own),
        }
    return counted
