"""A translation between tags: its form, then BLEU against the reference, a semantic score, or both.

    <think>...</think><translate>...</translate>

Source: MT-R1-Zero, arXiv:2504.10160, and its release (fzp0424/MT-R1-Zero at a2e38c4, mt_score.py). Each tag must be
there exactly once, in this order: +1, otherwise -1. The answer adds -2 where the form is broken or the translation is
empty; else BLEU / 100 (``lex``), the semantic score (``sem``), or their sum (``mix``). So a broken form has -3, an
empty translation -1, others 1 to 2, or 1 to 3. `discrete` adds 2 where the measure is above its threshold, both of
them for ``mix``, otherwise -1.5.

BLEU is sacrebleu's corpus BLEU of one pair, with exponential smoothing, rounded to 2 decimals of a percent, by the
tokenizer of the task's field ``language`` (zh, ja, all others 13a). It demands four orders, so that three right words
have 0; `effective_order` takes as many as there are.

The semantic score is that of another reward, of the translation in place of the completion, in [0, 1]: a function of
the user's, or `comet`, for example. It is 0 for a copy of the source (field ``source``, or the prompt), which such
models score as perfect.

Differs: only what the model wrote is read, not the prompt. A translation is correct where it equals the reference but
for white space. Of a translation the first 4,000 characters are read, and the
score states it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Gold, Reward, RewardContext, failure
from posttrain.errors import TaskFault, UserError
from posttrain.grading.pieces import with_text
from posttrain.types import Group, Score, Task, Trajectory

MARKS = ("<think>", "</think>", "<translate>", "</translate>")
LONGEST = 4000
TOKENIZERS = {"zh": "zh", "ja": "ja-mecab"}
Threshold = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Translated(Reward):
    """Scores a translation."""

    measure: Literal["lex", "sem", "mix"] = "lex"
    """What is added to the form: BLEU, the semantic score, or both."""
    semantic: Reward | None = None
    """Scores the translation by its meaning; for ``sem`` and ``mix``."""
    discrete: bool = False
    """Whether 2 or -1.5 is added, by thresholds."""
    lex_threshold: Threshold = 0.4
    """BLEU above which ``discrete`` adds 2."""
    sem_threshold: Threshold = 0.9
    """The same of the semantic score."""
    thinking: bool = True
    """Whether the form has thoughts before the translation."""
    effective_order: bool = False
    """Whether BLEU has no more orders than the translation has words."""

    @model_validator(mode="after")
    def check_semantic(self) -> "Translated":
        """Refuse a measure without what it is measured by."""
        if self.measure != "lex" and self.semantic is None:
            raise PydanticCustomError("semantic", "measure {measure} needs semantic", {"measure": self.measure})
        return self

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """What scores meaning."""
        return {"semantic": self.semantic} if self.semantic is not None else {}

    @property
    def needs_answer(self) -> bool:
        """The reference."""
        return True

    def prepare(self) -> None:
        """Load sacrebleu. Raises `UserError` where it is not installed."""
        super().prepare()
        _bleu("", "a", "13a", False)

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task with an empty reference."""
        super().check(tasks)
        for task in tasks:
            if not (task.answer or "").strip():
                raise TaskFault(
                    task.key, f"task {task.key} has no reference translation; fill answer or leave the row out"
                )

    def gold(self, task: Task) -> Gold | None:
        """The reference in the form."""
        thought = "<think>so</think>" if self.thinking else ""
        return Gold(answer=(task.answer or "").strip(), form=f"{thought}<translate>{{answer}}</translate>")

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the translations, those that have the form as one group for the semantic score."""
        found = [translation_of(t.completion, thinking=self.thinking) for t in group]
        meant: dict[int, Score] = {}
        formed = [i for i, text in enumerate(found) if text]
        if self.semantic is not None and formed:
            parts = tuple(with_text(group.trajectories[i], found[i] or "") for i in formed)
            scores = await self.semantic.score(replace(group, trajectories=parts), context)
            meant = dict(zip(formed, scores, strict=True))
        return [self._score(t, text, meant.get(i)) for i, (t, text) in enumerate(zip(group, found, strict=True))]

    def _score(self, trajectory: Trajectory, text: str | None, meant: Score | None) -> Score:
        reference = (trajectory.task.answer or "").strip()
        if not reference:
            return failure("the task has no reference translation")
        form = Score(value=-1.0 if text is None else 1.0, status="wrong" if text is None else "ok")
        if not text:
            value = form.value - 2.0
            marks = MARKS if self.thinking else MARKS[2:]
            wanted = f"not of the form {'...'.join(marks[:2])}{'...'.join(marks[2:])}, each once, in this order"
            why = wanted if text is None else "the translation is empty"
            return Score(value=value, status="wrong", explanation=why, parts={"form": form})
        if meant is not None and meant.status == "error":
            return failure(f"the semantic score failed: {meant.explanation}")
        bleu = _bleu(text, reference, TOKENIZERS.get(str(trajectory.task.fields.get("language")), "13a"), self._orders)
        copied = _plain(text) == _plain(_source(trajectory.task)) != _plain(reference)
        meaning = None if meant is None else 0.0 if copied else meant.value
        values: dict[str, list[float | None]] = {"lex": [bleu], "sem": [meaning], "mix": [bleu, meaning]}
        known = [value for value in values[self.measure] if value is not None]
        if self.discrete:
            limits = {"lex": [self.lex_threshold], "sem": [self.sem_threshold]}
            over = limits.get(self.measure, [self.lex_threshold, self.sem_threshold])
            added = 2.0 if all(own > limit for own, limit in zip(known, over, strict=True)) else -1.5
        else:
            added = sum(known)
        parts = {"form": form, "bleu": Score(value=bleu, status="ok" if bleu == 1.0 else "wrong")}
        if meaning is not None and meant is not None:
            parts["meaning"] = replace(meant, value=meaning)
        right = _plain(text) == _plain(reference)
        measured = f"BLEU {bleu:.4f}" + (f", meaning {meaning:.4f}{', a copy of the source' * copied}" if meant else "")
        if len(_between_tags(trajectory.completion, self.thinking) or "") > LONGEST:
            measured += f", of the first {LONGEST:,} characters"
        return Score(
            value=1.0 + added, status="ok" if right else "wrong", answer=text[:200], explanation=measured, parts=parts
        )

    @property
    def _orders(self) -> bool:
        return self.effective_order


def translation_of(text: str, *, thinking: bool = True) -> str | None:
    """The start of the translation, stripped; None where a tag is missing, there twice, or out of order."""
    found = _between_tags(text, thinking)
    return None if found is None else found[:LONGEST]


def _between_tags(text: str, thinking: bool) -> str | None:
    marks = MARKS if thinking else MARKS[2:]
    places = [text.find(mark) for mark in marks]
    if any(text.count(mark) != 1 for mark in marks) or places != sorted(places):
        return None
    return text[places[-2] + len(marks[-2]) : places[-1]].strip()


def _bleu(text: str, reference: str, tokenizer: str, effective_order: bool) -> float:
    """BLEU of a pair, in [0, 1], rounded to 4 decimals. Raises `UserError` where sacrebleu is not installed."""
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:
        raise UserError("BLEU is computed by the library sacrebleu; pip install 'posttrain[translation]'") from None
    scorer = BLEU(smooth_method="exp", tokenize=tokenizer, effective_order=effective_order)
    return float(round(scorer.corpus_score([text], [[reference]]).score, 2)) / 100


def _source(task: Task) -> str:
    source = task.fields.get("source", task.prompt)
    return source if isinstance(source, str) else ""


def _plain(text: str) -> str:
    return " ".join(text.split())
