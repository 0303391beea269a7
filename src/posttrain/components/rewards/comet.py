"""The quality of a translation by a COMET model in a user's folder.

Source: COMET, arXiv:2009.09025, and COMET-Kiwi, arXiv:2209.06243, which is the semantic score of MT-R1-Zero,
arXiv:2504.10160. Models with and without references are read as they are published (`posttrain.grading._comet_folder`
has the layout); nothing is fetched.

    posttrain run mt_r1_zero reward.measure=mix 'reward.semantic={kind: comet, folder: FOLDER}' tasks=mine.jsonl
    # columns: prompt, source, answer (the reference)

A copy of the source, which models without a reference score high, has 0, as in `semantic`. The value is cut to [0, 1].

Differs: the model is the reward's own and not that of a role. Of a text the first 10,000 characters are read, and as
many tokens as the encoder has places.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.similarity import copies, source_of
from posttrain.types import Group, Score, Trajectory

if TYPE_CHECKING:
    from posttrain.grading._comet_folder import CometModel

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Comet(Reward):
    """Scores translations by a COMET model."""

    folder: Annotated[str, Field(min_length=1)]
    """The folder with ``hparams.yaml`` and the checkpoint."""
    encoder: str | None = None
    """The folder with ``config.json`` and ``tokenizer.json`` of its encoder; null is ``encoder`` in `folder`."""
    copy_at: Share | None = 0.9
    """Share of characters in common with the source from which a text is a copy; null lets copies pass."""
    correct_at: Share = 0.9
    """Smallest score that counts as correct."""

    def prepare(self) -> None:
        """Read the model. Raises `UserError` that names what is missing."""
        self._model()

    def _model(self) -> "CometModel":
        return _opened(self.folder, self.encoder)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score each translation alone."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        task, text = trajectory.task, trajectory.completion.strip()
        source, reference = source_of(task).strip(), (task.answer or "").strip()
        model = self._model()
        if not source or (model.needs_reference and not reference):
            return failure(f"task '{task.key}' has no {'source' if not source else 'reference'} to compare with")
        if not text:
            return Score(value=0.0, status="wrong", explanation="nothing was written")
        if self.copy_at is not None and copies(text, source, reference, self.copy_at):
            return Score(value=0.0, status="wrong", answer=text[:200], explanation="a copy of the source")
        value = model.score(source, text, reference or None)
        if value != value:
            return failure(f"the model in '{self.folder}' gives {value}")
        value = min(max(value, 0.0), 1.0)
        return Score(
            value=value,
            status="ok" if value >= self.correct_at else "wrong",
            answer=text[:200],
            explanation=f"COMET {value:.4f}",
        )


@cache
def _opened(folder: str, encoder: str | None) -> "CometModel":
    from posttrain.grading._comet_folder import CometModel

    return CometModel(Path(folder), Path(encoder) if encoder else None)
