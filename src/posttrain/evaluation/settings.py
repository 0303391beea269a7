"""Settings of the held-out evaluation of a run."""

from pydantic import NonNegativeInt, PositiveInt, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.rollouts import Rollout
from posttrain.components.search import Search
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling


@frozen
class Evaluation:
    """How a run is judged: on tasks that it never trains on."""

    tasks: Tasks | None = None
    """A test set of its own; when left out, tasks are held out of the recipe's tasks by key."""
    holdout: PositiveInt = 200
    """Number of tasks held out (at most half of what there is, which is said when it happens)."""
    verifier: Reward | None = None
    """Judges the answers; when left out, the training reward does, and the report says so."""
    correct_at: float = 1.0
    """A score of at least this counts as a right answer."""
    every: NonNegativeInt = 0
    """Steps between evaluations inside a stage; 0 evaluates before the first stage and after each one only."""
    samples: NonNegativeInt = 0
    """Sampled answers per task for pass@k, beside the greedy one; 0 is greedy only."""
    sampling: Sampling | None = None
    """How the sampled answers are drawn (the greedy ones share its limits and stops); when left out, as in the last
    stage that samples."""
    rollout: Rollout | None = None
    """The world in which tasks are attempted, if they take several turns; when left out, that of the last stage that
    samples."""
    search: Search | None = None
    """Answers once more by a search with a value model, beside the greedy answers; None does not."""

    @field_validator("search")
    @classmethod
    def refuse_oracles(cls, search: Search | None) -> Search | None:
        """An answer must not be chosen by looking at how it is judged."""
        if search is not None and search.judges:
            raise PydanticCustomError(
                "search", "a search that looks at rewards cannot answer held-out tasks; give it a value_role"
            )
        return search
