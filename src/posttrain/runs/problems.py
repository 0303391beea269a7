"""Splits the tasks of a recipe into training and held-out tasks, which never share a prompt."""

from collections.abc import Collection, Sequence
from functools import cached_property

from posttrain.components.rewards import Reward
from posttrain.components.rollouts import Rollout
from posttrain.components.tasks import Tasks
from posttrain.datasets.holdout import exclude, holdout
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.recipes.tree import Recipe
from posttrain.runs.changes import digest_of
from posttrain.stages import Stage
from posttrain.types import Task


class Problems:
    """The tasks of a recipe, split once."""

    def __init__(self, recipe: Recipe) -> None:
        """Loads and splits at once, so that bad data is said before anything is trained."""
        self.recipe = recipe
        self.notes: list[str] = []
        """What a user should know about the split."""
        self.digests: dict[str, str] = {}
        """SHA-256 of all the tasks of each source, by its place in the recipe."""
        self.files: dict[str, str] = {}
        """SHA-256 of each file that they were read from, by path."""
        self.allows_special_tokens = False
        """Whether a source says that special tokens in its texts are meant as such."""
        settings = recipe.evaluation
        own = self._load(recipe.tasks, "tasks")
        if settings.tasks is not None:
            self.held_out: list[Task] = list(self._load(settings.tasks, "evaluation.tasks"))[: settings.holdout]
            self.train: list[Task] = list(own)
        else:
            train, held_out = holdout(own, settings.holdout, recipe.seed)
            self.train, self.held_out = list(train), list(held_out)
            if not held_out:
                raise UserError(
                    f"the {len(own)} tasks of kind '{recipe.tasks.kind}' all ask the same, so none can be held out to "
                    "judge by; give at least two that differ, or a test set of its own as evaluation.tasks"
                )
            if len(held_out) < settings.holdout:
                self.notes.append(f"only {len(held_out)} tasks could be held out, not {settings.holdout}")
        if self.rollout is not None and self.rollout.held_out(1, self.sampling) is not None:
            self.rollout.check(self.held_out)
        self._stages = {name: self._without_held_out(stage, name) for name, stage in recipe.stages.items()}

    def of(self, stage: Stage) -> list[Task]:
        """The tasks that a stage of the recipe trains on."""
        return next(self._stages[name] for name, member in self.recipe.stages.items() if member is stage)

    @cached_property
    def verifier(self) -> Reward:
        """Judges the held-out answers: the evaluation's own verifier, else the reward of the last stage with one."""
        if self.recipe.evaluation.verifier is not None:
            return self.recipe.evaluation.verifier
        if not self._training_rewards:
            raise UserError("evaluation.verifier is needed: no stage of this recipe has a reward to judge with")
        return self._training_rewards[-1]

    @cached_property
    def rewards(self) -> list[Reward]:
        """Everything that judges in this run: the rewards of stages and of their selections, and the verifier."""
        chosen_by = (getattr(stage.selection, "reward", None) for stage in self.recipe.stages.values())
        selecting = [reward for reward in chosen_by if isinstance(reward, Reward)]
        others = [r for r in (*self._training_rewards, *selecting) if r is not self.verifier]
        return [*others, self.verifier]

    @property
    def _training_rewards(self) -> list[Reward]:
        found = (getattr(stage, "reward", None) for stage in self.recipe.stages.values())
        return [reward for reward in found if isinstance(reward, Reward)]

    @cached_property
    def sampling(self) -> Sampling:
        """Limits of held-out answers: the evaluation's own, else those of the last stage that samples."""
        if self.recipe.evaluation.sampling is not None:
            return self.recipe.evaluation.sampling
        rollouts = [*self._rollouts, self.recipe.evaluation.rollout]
        found = [s for r in rollouts if isinstance(s := getattr(r, "sampling", None), Sampling)]
        return found[-1] if found else Sampling()

    @cached_property
    def rollout(self) -> Rollout | None:
        """How held-out tasks are attempted: the evaluation's own way, else that of the last stage that samples."""
        found = [*self._rollouts, *([self.recipe.evaluation.rollout] if self.recipe.evaluation.rollout else [])]
        return found[-1] if found else None

    @property
    def _rollouts(self) -> list[Rollout]:
        found = (getattr(stage, "rollout", None) for stage in self.recipe.stages.values())
        return [rollout for rollout in found if isinstance(rollout, Rollout)]

    def _without_held_out(self, stage: Stage, name: str) -> list[Task]:
        """A stage's tasks, none of which is in the held-out set."""
        tasks = self.train if stage.tasks is None else list(self._load(stage.tasks, f"stages.{name}.tasks"))
        kept, removed = exclude(tasks, self.held_out)
        if removed:
            self.notes.append(f"stage {name}: left out {removed} tasks that are in the held-out set")
        return list(kept)

    def _load(self, tasks: Tasks, place: str) -> Sequence[Task]:
        """Every task of a source, whose digest is kept."""
        loaded = load(tasks)
        self.digests[place] = digest_of(loaded)
        self.files |= tasks.fingerprint
        self.allows_special_tokens |= tasks.allows_special_tokens
        return loaded


def load(tasks: Tasks) -> Sequence[Task]:
    """Every task of a source. Raises `UserError` when there is none."""
    loaded = tasks.load()
    if not loaded:
        raise UserError(f"the tasks of kind '{tasks.kind}' are empty; a run needs at least two")
    return loaded


def note_of_special_tokens(tasks: Sequence[Task], special: Collection[str], allowed: bool) -> str:
    """How many tasks hold the text of a special token, and what it is taken for; empty where none does."""
    found = [[token for token in special if token and any(token in text for text in _texts_of(task))] for task in tasks]
    count = sum(map(bool, found))
    if not count:
        return ""
    named = ", ".join(sorted(set().union(*found)))
    taken = "a special token, as tasks.special_tokens=allow asks" if allowed else "text, not a special token"
    other = "" if allowed else "; data made with them on purpose says tasks.special_tokens=allow"
    return f"{count} of {len(tasks)} tasks hold {named} in their texts, each taken for {taken}{other}"


def _texts_of(task: Task) -> list[str]:
    """Every text of a task that a model is given or shown to imitate."""
    asked = [task.prompt] if isinstance(task.prompt, str) else [message["content"] for message in task.prompt]
    pairs = [text for pair in task.preferences for text in (pair.chosen, pair.rejected)]
    said = [utterance.text for episode in task.episodes for utterance in episode]
    return [*asked, *task.demonstrations, *pairs, *said, *(rated.completion for rated in task.rated)]
