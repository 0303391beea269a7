"""How well models retrieve: MRR@10 and recall of the identifiers that they write by beams over a prefix trie.

Source: the evaluation of DDRO, arXiv:2504.05181 (kidist-amde/ddro at cd5d1f77, hf_eval and utils/trie): beams are
constrained to the identifiers of the corpus and ranked by the sum of the log-probabilities of the full vocabulary; 15
to 100 beams. A query counts with its relevant identifiers, its answer or the demonstrations.

    posttrain diagnose retrieval MODEL MODEL2 tasks=queries.jsonl
    # columns: prompt, answer (an identifier), ranked (a list of all identifiers)

Besides: the mean log-probability of the relevant identifier, and the share of queries whose first identifier differs
where log-probabilities are renormalized over the tokens that may follow, as in constrained sampling.

Differs: all documents of an identifier count as one.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen, nearest
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Task

ROWS: Final = ()
FIRST: Final = 10
"""Ranks that the mean reciprocal rank counts."""


@frozen
class RetrievalRanks(Diagnostic):
    """Ranks of the relevant identifiers."""

    subjects: ClassVar[tuple[str, ...]] = ("model", "...")

    tasks: Tasks
    """Queries, with the identifiers of the corpus."""
    field: str = "ranked"
    """Column with a list of identifiers; those of all queries are the corpus."""
    beams: Annotated[PositiveInt, Field(le=1000)] = 15
    """Beams; more than there are identifiers rank all of them."""
    recall: Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=16)] = (1, 10)
    """k of each recall."""

    def examine(self, *subjects: Subject) -> Finding:
        """Rank the identifiers of each query by each model."""
        tasks = self.tasks.load()
        corpus = sorted({text for task in tasks for text in (*self._listed(task), *_right(task))})
        found = {subject.name: self._measured(subject, tasks, corpus) for subject in subjects}
        values = {"queries": len(tasks), "identifiers": len(corpus), "beams": self.beams, "found": found}
        return Finding(values=values, lines=self._lines(len(tasks), len(corpus), found))

    def _listed(self, task: Task) -> Sequence[str]:
        listed = task.fields.get(self.field)
        if not isinstance(listed, (list, tuple)) or not all(isinstance(text, str) for text in listed):
            raise UserError(
                f"task {task.key}: no list of identifiers in the column '{self.field}'; "
                f"{nearest(self.field, task.fields)}"
            )
        if not _right(task):
            raise UserError(f"task {task.key}: no relevant identifier; give a column 'answer'")
        return listed

    def _measured(self, subject: Subject, tasks: Sequence[Task], corpus: Sequence[str]) -> dict[str, float]:
        """The numbers of one model."""
        from posttrain.components.diagnostics._likelihoods import token_logps
        from posttrain.components.diagnostics._trie import Trie, beams

        policy = subject.load()
        ranks, other, logps = list[float](), list[bool](), list[float]()
        for task in tasks:
            prompt = np.asarray(policy.tokenizer.encode_prompt(task.prompt), np.int64)
            ids = {
                tuple(int(i) for i in policy.tokenizer.encode_completion(task.prompt, text)): text for text in corpus
            }
            trie = Trie.of(ids)
            order = [ids[sequence] for sequence, _ in beams(policy, prompt, trie, self.beams)]
            right = _right(task)
            ranks.append(min((n for n, text in enumerate(order, 1) if text in right), default=np.inf))
            within = [ids[sequence] for sequence, _ in beams(policy, prompt, trie, self.beams, renormalized=True)]
            other.append(within[:1] != order[:1])
            written = [np.array(sequence) for sequence, text in ids.items() if text == right[0]]
            [logp_T] = token_logps(policy, [(np.concatenate([prompt, written[0]]).astype(np.int64), len(prompt))])
            logps.append(float(logp_T.sum(dtype=np.float64)))
        rank_Q = np.array(ranks)
        recall = {f"recall@{k}": float((rank_Q <= k).mean()) for k in self.recall}
        return {
            "mrr@10": float(np.where(rank_Q <= FIRST, 1.0 / rank_Q, 0.0).mean()),
            **recall,
            "logp": float(np.mean(logps)),
            "other_first": float(np.mean(other)),
        }

    def _lines(self, queries: int, identifiers: int, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
        lines = [f"{queries} queries, {identifiers} identifiers, {self.beams} beams"]
        for name, row in found.items():
            recall = ", ".join(f"R@{k} {row[f'recall@{k}']:.1%}" for k in self.recall)
            lines.append(
                f"{name}: MRR@{FIRST} {row['mrr@10']:.3f}, {recall}; log-probability of the relevant one "
                f"{row['logp']:.2f}; another one first if renormalized: {row['other_first']:.1%}"
            )
        return lines


def _right(task: Task) -> tuple[str, ...]:
    """The relevant identifiers: the demonstrations, or the answer."""
    return task.demonstrations or ((task.answer,) if task.answer else ())
