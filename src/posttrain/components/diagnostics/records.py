"""How well models label: accuracy and macro F1 of each field of their records, and whether they prefer to hint.

Source: the measures of Sonkar et al. 2024, arXiv:2402.05000 (luffycodes/Tutorbot-Spock at fcec4164, evaluate_responses
and evaluate_ppl): labels of answers against the reference's, an unreadable answer having an empty label; and, of turns
that have it, whether the reference has a lower perplexity per token than the same turn rewritten (field ``told``: the
solution given away where the tutor should hint).

    posttrain diagnose records MODEL MODEL2 tasks=mine.jsonl fields=[evaluation,action,state]
    # columns: prompt, answer (the record), told (optional)

Macro F1 is the mean over the labels of the references of 2 true / (2 true + false positive + false negative).

Differs: in the release macro F1 drops the first label in alphabetical order, meant to be the empty one; here the empty
label is none of the references'.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling, wait_for
from posttrain.errors import UserError
from posttrain.grading.labels import read_record
from posttrain.types import Task

ROWS: Final = (24,)


@frozen
class Records(Diagnostic):
    """Greedy records of each model, against the references."""

    subjects: ClassVar[tuple[str, ...]] = ("model", "...")

    tasks: Tasks
    """Tasks with a reference record as their answer."""
    fields: Annotated[tuple[str, ...], Field(min_length=1, max_length=32)]
    """Names of the fields that are labels."""
    rewritten: str = "told"
    """Field of a task with another record, which should be less likely."""
    max_tokens: PositiveInt = 128
    """Longest record."""

    def examine(self, *subjects: Subject) -> Finding:
        """Sample greedily from each model, and compare."""
        tasks = self.tasks.load()
        theirs = [self._reference(task) for task in tasks]
        found = {subject.name: self._measured(subject, tasks, theirs) for subject in subjects}
        return Finding(values={"tasks": len(tasks), "found": found}, lines=self._lines(len(tasks), found))

    def _reference(self, task: Task) -> dict[str, str]:
        record = read_record(task.answer or "") or {}
        if missing := [name for name in self.fields if not record.get(name.lower())]:
            raise UserError(
                f"task {task.key}: the reference record has no '{missing[0]}'; its fields: "
                f"{', '.join(record) or 'none'}; leave the row out, or name other fields"
            )
        return record

    def _measured(self, subject: Subject, tasks: Sequence[Task], theirs: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """The numbers of one model."""
        from posttrain.components.diagnostics._answers import answer_all
        from posttrain.components.diagnostics._likelihoods import token_logps

        policy = subject.load()
        sampling = Sampling(temperature=0.0, max_tokens=self.max_tokens)
        groups = wait_for(answer_all(subject.serve(policy), self.kind, tasks, 1, sampling))
        ours = [read_record(group.trajectories[0].completion) or {} for group in groups]
        values: dict[str, Any] = {"unreadable": sum(not record for record in ours)}
        for name in self.fields:
            pairs = [(a.get(name.lower(), ""), b[name.lower()]) for a, b in zip(ours, theirs, strict=True)]
            values[name] = {"accuracy": float(np.mean([a == b for a, b in pairs])), "macro_f1": macro_f1(pairs)}
        same = [all(a.get(n.lower()) == b[n.lower()] for n in self.fields) for a, b in zip(ours, theirs, strict=True)]
        values["all"] = float(np.mean(same))
        both = [(task, text) for task in tasks if isinstance(text := task.fields.get(self.rewritten), str)]
        if both:
            written = []
            for task, text in both:
                prompt = policy.tokenizer.encode_prompt(task.prompt)
                for one in (task.answer or "", text):
                    own = policy.tokenizer.encode_completion(task.prompt, one)
                    written.append((np.concatenate([prompt, own]).astype(np.int64), max(1, len(prompt))))
            means = np.array([float(np.mean(x, dtype=np.float64)) for x in token_logps(policy, written)]).reshape(-1, 2)
            values["compared"] = len(both)
            values["reference_likelier"] = float((means[:, 0] > means[:, 1]).mean())
        return values

    def _lines(self, count: int, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """A line of each model."""
        lines = [f"{count} records; accuracy (macro F1) of each field, and of all together"]
        for name, row in found.items():
            cells = [f"{field} {row[field]['accuracy']:.1%} ({row[field]['macro_f1']:.2f})" for field in self.fields]
            likelier = (
                f"; the reference likelier than the rewritten turn in {row['reference_likelier']:.1%} of "
                f"{row['compared']}"
                if "compared" in row
                else ""
            )
            unreadable = f"; {row['unreadable']} unreadable" if row["unreadable"] else ""
            lines.append(f"{name}: {', '.join(cells)}, all {row['all']:.1%}{likelier}{unreadable}")
        return lines


def macro_f1(pairs: Sequence[tuple[str, str]]) -> float:
    """Mean F1 over the labels of the references, from pairs of a predicted and a reference label."""
    scores = []
    for label in sorted({theirs for _, theirs in pairs}):
        right = sum(ours == theirs == label for ours, theirs in pairs)
        wrong = sum((ours == label) != (theirs == label) for ours, theirs in pairs)
        scores.append(2 * right / (2 * right + wrong))
    return float(np.mean(scores))
