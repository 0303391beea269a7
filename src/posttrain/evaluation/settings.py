"""Settings of the held-out evaluation of a run."""

from typing import Any, Final, Literal, Self

from pydantic import NonNegativeInt, PositiveInt, field_validator, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.rollouts import Rollout
from posttrain.components.search import Search
from posttrain.components.tasks import Tasks
from posttrain.datasets.overlap import Decontamination
from posttrain.engines import Sampling

OFF: Final = ("off", "none")
"""Words for no evaluation, beside null and false."""


@frozen
class Evaluation:
    """How a run is evaluated, on tasks that it never trains on."""

    tasks: Tasks | None = None
    """A separate test set; None holds tasks out of the recipe's, by key."""
    by: Literal["auto", "answers", "loss", "both", "none"] = "auto"
    """What is measured: ``answers``, sampled and scored; ``loss``, the likelihood of the demonstrations and pairs that
    stages learn from, without sampling; both; or ``none``, which holds nothing out; ``evaluation=off`` is short for it.
    ``auto`` takes all that the held-out tasks allow: answers need a verifier and, if it compares with them, reference
    answers."""
    holdout: PositiveInt = 200
    """Number of tasks held out, at most half of all tasks; a note in the record states it when that limit applies."""
    verifier: Reward | None = None
    """Scores the answers; None takes the training reward, and the report states so."""
    correct_at: float = 1.0
    """Smallest score of a correct answer."""
    every: NonNegativeInt = 0
    """Steps between evaluations inside a stage; 0 evaluates only before the first stage and after each stage."""
    early: NonNegativeInt = 0
    """Step of each stage after which the held-out tasks are answered once, whatever `every` is, so that a collapse is
    noticed early; 0 does not. A recipe that is given a larger model than its own gets 3."""
    samples: NonNegativeInt = 0
    """Sampled answers per task for pass@k, in addition to the greedy one; 0 is greedy only."""
    sampling: Sampling | None = None
    """Sampling of the sampled answers (the greedy ones share its limits and stops); None takes that of the last stage
    that samples."""
    rollout: Rollout | None = None
    """The rollout with the environment that tasks are answered in, if they take several turns; None takes that of the
    last stage that samples."""
    decontamination: Decontamination | None = None
    """Rule by which training tasks that resemble a held-out one are left out, in all stages; None leaves out only those
    with the same prompt."""
    search: Search | None = None
    """Answers the tasks also by a search with a value model, in addition to the greedy answers; None does not."""

    candidates: Literal["token", "whole"] | None = None
    """Answers the tasks also by the likeliest of their ``candidates`` (a field of each task), in addition to the greedy
    answers: by the mean log-probability of a ``token``, or by that of the ``whole`` text; None does not."""

    @model_validator(mode="before")
    @classmethod
    def switched_off(cls, given: Any) -> Any:
        """A word for no evaluation in the place of settings. Refuses other words."""
        if given is None or given is False or given in OFF:
            return {"by": "none"}
        if isinstance(given, str | bool):
            raise PydanticCustomError("off", "settings are expected, or off, which holds nothing out")
        return given

    @model_validator(mode="after")
    def check_off(self) -> Self:
        """Refuse a test set that nothing is measured on."""
        if self.by == "none" and self.tasks is not None:
            raise PydanticCustomError("by", "by is none, so the test set in tasks would not be used; leave one out")
        return self

    @field_validator("search")
    @classmethod
    def refuse_oracles(cls, search: Search | None) -> Search | None:
        """Refuse a search that selects answers by the reward."""
        if search is not None and search.uses_rewards:
            raise PydanticCustomError(
                "search", "a search that uses rewards cannot answer held-out tasks; give it a value_role"
            )
        return search
