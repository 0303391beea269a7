"""Prefixes: how early the states of a reward model separate right answers from wrong ones, and what votes save by it.

Source: goal-conditioned representations, Nath et al. 2024, arXiv:2407.13887, and its release (goal-conditioned-rm at
46e3a96, examples/experiments/eval/filter_and_eval.py). The goal g is the mean of the states after the last tokens of
correct solutions. The value of a prefix is Q = cos(h, g) with the state h after it.

    AUROC     of Q after 25, 50, 75 and 100 % of the tokens, for right and wrong answers
    filter    an answer is left out where ANY of its tokens has Q at or below a threshold; its tokens from the first
              such one on are saved. The others vote. Where all answers of a task are left out, all are kept, nothing is
              saved, and the task counts as a fallback

Goals are the demonstrations of the first tasks, which are not measured. Votes are equal parsed answers, of equally
frequent ones the first.

Differs: answers are sampled whole, so that saved tokens are counted and not saved. Decoding by Q is left out.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._answers import answer_all, check_roles
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling, wait_for
from posttrain.errors import UserError
from posttrain.types import FloatArray, Group, Task, Trajectory

ROWS: Final = ()
SHARES: Final = (0.25, 0.5, 0.75, 1.0)


@frozen
class Prefixes(Diagnostic):
    """Values of prefixes, and majority votes that leave out answers by them."""

    subjects: ClassVar[tuple[str, ...]] = ("policy", "reward_model")

    tasks: Tasks
    """Tasks with demonstrations; the first `goals` give the goal, the policy answers the others."""
    verifier: Reward
    """Scores the answers. It must not need models of a recipe."""
    goals: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Tasks whose demonstration is averaged into the goal."""
    n: PositiveInt = 16
    """Answers to each task."""
    thresholds: Annotated[tuple[float, ...], Field(min_length=1)] = (-0.5, 0.0, 0.25, 0.5, 0.75, 0.9)
    """Values of Q at or below which an answer is left out."""
    sampling: Sampling = Sampling()
    """Sampling of the answers."""

    def examine(self, *subjects: Subject) -> Finding:
        """Sample and score answers, evaluate their states, and count."""
        from posttrain.components.diagnostics._likelihoods import last_states

        check_roles(self.verifier)
        policy, model = (subject.load() for subject in subjects)
        tasks = self.tasks.load()
        shown = [task for task in tasks[: self.goals] if task.demonstrations]
        if not shown or len(tasks) <= self.goals:
            raise UserError(
                f"{len(shown)} of the first {self.goals} tasks have a demonstration, and {len(tasks[self.goals :])} "
                "tasks are left to answer; give tasks with the columns prompt and completion, more than goals"
            )
        ends = last_states(model, [_written(model, task) for task in shown])
        goal_D = np.stack([own[-1] for own in ends]).mean(0)
        server = subjects[0].serve(policy)
        groups = wait_for(self._answers(server, tasks[self.goals :]))
        answers = [[t for t in g if t.score is not None and t.score.status != "error"] for g in groups]
        flat = [(t.token_ids, len(t.token_ids) - t.num_trained) for own in answers for t in own]
        values = iter([cosines(state_TD, goal_D) for state_TD in last_states(model, flat)])
        rows = [[(t, next(values)) for t in own] for own in answers]
        found: dict[str, Any] = {
            "tasks": len(rows),
            "answers": len(flat),
            "left_out": self.n * len(rows) - len(flat),
            "auroc": {f"{share:g}": auroc(rows, share) for share in SHARES},
            "vote": filtered(rows, None),
            "filtered": {f"{threshold:g}": filtered(rows, threshold) for threshold in self.thresholds},
        }
        return Finding(values=found, lines=_lines(found))

    async def _answers(self, server: Any, tasks: Sequence[Task]) -> list[Group]:
        groups = await answer_all(server, self.kind, tasks, self.n, self.sampling)
        return [await scored(group, self.verifier, RewardContext()) for group in groups]


Row = Sequence[tuple[Trajectory, FloatArray]]
"""The answers to a task, each with [T] values after its tokens."""


def cosines(state_TD: FloatArray, goal_D: FloatArray) -> FloatArray:
    """[T] cosine of each state with the goal; 0 for a state of zeros."""
    norm_T = np.linalg.norm(state_TD, axis=1) * np.linalg.norm(goal_D)
    return np.asarray((state_TD @ goal_D) / np.where(norm_T > 0, norm_T, 1.0), np.float32)


def auroc(rows: Sequence[Row], share: float) -> float | None:
    """Chance that a right answer has a larger value than a wrong one after a share of its tokens, ties half; None
    without one of both.
    """
    read = [(t.solved, float(q_T[max(0, round(share * len(q_T)) - 1)])) for row in rows for t, q_T in row if len(q_T)]
    right, wrong = ([q for solved, q in read if solved is which] for which in (True, False))
    if not right or not wrong:
        return None
    ordered = np.sort(wrong)
    below, upto = np.searchsorted(ordered, right, "left"), np.searchsorted(ordered, right, "right")
    return float((below + upto).mean() / 2 / len(wrong))


def filtered(rows: Sequence[Row], threshold: float | None) -> dict[str, float]:
    """Accuracy of the vote of the answers that are left, shares of tokens saved and of tasks without any left."""
    right = saved = total = fallbacks = kept_answers = 0
    for row in rows:
        firsts = [_first_below(q_T, threshold) for _, q_T in row]
        kept = [t for (t, _), first in zip(row, firsts, strict=True) if first is None]
        total += sum(len(q_T) for _, q_T in row)
        if kept or not row:
            pairs = zip(row, firsts, strict=True)
            saved += sum(len(q_T) - first for (_, q_T), first in pairs if first is not None)
        else:
            fallbacks, kept = fallbacks + 1, [t for t, _ in row]
        kept_answers += len(kept)
        right += _voted(kept)
    count = max(len(rows), 1)
    return {
        "accuracy": right / count,
        "tokens_saved": saved / max(total, 1),
        "fallbacks": fallbacks / count,
        "answers_kept": kept_answers / max(sum(map(len, rows)), 1),
    }


def _first_below(q_T: FloatArray, threshold: float | None) -> int | None:
    """Index of the first value at or below the threshold."""
    if threshold is None or not (q_T <= threshold).any():
        return None
    return int(np.flatnonzero(q_T <= threshold)[0])


def _voted(answers: Sequence[Trajectory]) -> bool:
    """Whether the most frequent answer is right."""
    named = [(t.score.answer or "", t.solved) for t in answers if t.score is not None]
    if not named:
        return False
    most = Counter(name for name, _ in named).most_common(1)[0][0]
    return next(solved for name, solved in named if name == most)


def _written(model: Any, task: Task) -> tuple[Any, int]:
    """The tokens of a prompt and its demonstration, of which those of the demonstration are measured."""
    prompt = model.tokenizer.encode_prompt(task.prompt)
    written = model.tokenizer.encode_completion(task.prompt, task.demonstrations[0])
    return np.concatenate([prompt, written]), len(prompt)


def _lines(found: dict[str, Any]) -> list[str]:
    lost = f", {found['left_out']} more could not be scored" if found["left_out"] else ""
    lines = [f"{found['answers']} answers to {found['tasks']} tasks{lost}"]
    worded = ((share, "not defined" if x is None else f"{x:.3f}") for share, x in found["auroc"].items())
    lines.append("AUROC of prefixes: " + ", ".join(f"{float(share):.0%} {x}" for share, x in worded))
    for name, row in {"all": found["vote"], **found["filtered"]}.items():
        lines.append(
            f"{'vote of all' if name == 'all' else f'Q above {name}':<14} accuracy {row['accuracy']:.3f}, tokens saved "
            f"{row['tokens_saved']:.1%}, fallbacks {row['fallbacks']:.1%}, answers kept {row['answers_kept']:.1%}"
        )
    return lines
