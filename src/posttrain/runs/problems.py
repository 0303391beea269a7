"""Splits the tasks of a recipe into training and held-out tasks, which never share a prompt."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property

from posttrain.components.rewards import Reward
from posttrain.components.rollouts import Rollout
from posttrain.components.tasks import Tasks
from posttrain.datasets.holdout import distinct, exclude, holdout
from posttrain.datasets.together import lists_in
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.errors.places import naming
from posttrain.recipes.tree import Recipe
from posttrain.runs.changes import digest_of
from posttrain.stages import Given, Stage
from posttrain.types import Message, Task


class Problems:
    """The tasks of a recipe, split once."""

    def __init__(self, recipe: Recipe) -> None:
        """Loads and splits the tasks, so that bad data is reported before anything is trained."""
        self.recipe = recipe
        self.train: list[Task]
        self.held_out: list[Task]
        self.notes: list[str] = []
        """Notes on the split for the user."""
        self.warnings: list[str] = []
        """Warnings of `posttrain.runs.checks`, once the recipe was checked."""
        self.digests: dict[str, str] = {}
        """SHA-256 of all the tasks of each source, by its place in the recipe."""
        self.files: dict[str, str] = {}
        """SHA-256 of each file that they were read from, by path."""
        self._places: list[Callable[[str], str]] = []
        self.allows_special_tokens = False
        """Whether a source allows special tokens in its texts."""
        settings = recipe.evaluation
        own = self._load(recipe.tasks, "tasks")
        if settings.by == "none":
            self.train, self.held_out = list(own), []
        elif settings.tasks is not None:
            tested = self._load(settings.tasks, "evaluation.tasks")
            self.held_out = self._first(self._distinct(map(_as_asked, tested)), settings.holdout)
            self.train = list(own)
        else:
            train, held_out = holdout(own, settings.holdout, recipe.seed, self.together)
            self.train, self.held_out = list(train), self._distinct(map(_as_asked, held_out))
            if not held_out:
                raise UserError(
                    f"the {len(own)} tasks of kind '{recipe.tasks.kind}' all have the same prompt, so none can be "
                    "held out; give at least two that differ, or a separate test set as evaluation.tasks, or "
                    "evaluation.by=none for a run that measures nothing"
                )
        if self.answered and self.rollout is not None and self.rollout.held_out(1, self.sampling) is not None:
            with self.naming_places():
                self.rollout.check(self.held_out)
        self._stages = {name: self._without_held_out(stage, name) for name, stage in recipe.stages.items()}
        self._further = {
            name: {
                other: self._kept(f"stages.{name}.{other}.tasks", source, f"stage {name}, {other}")
                for other, source in stage.further.items()
            }
            for name, stage in recipe.stages.items()
        }

    def of(self, stage: Stage) -> list[Task]:
        """The tasks that a stage of the recipe trains on."""
        return next(self._stages[name] for name, member in self.recipe.stages.items() if member is stage)

    def further(self, stage: Stage) -> Mapping[str, list[Task]]:
        """The other tasks that a stage of the recipe uses, by name."""
        return next(self._further[name] for name, member in self.recipe.stages.items() if member is stage)

    def naming_places(self) -> AbstractContextManager[None]:
        """Messages about a task begin with the file and line of its row, where it has them."""
        return naming(lambda key: next((found for own in self._places if (found := own(key))), ""))

    @cached_property
    def answered(self) -> bool:
        """Whether held-out tasks are answered and scored."""
        by = self.recipe.evaluation.by
        if by != "auto":
            return by in ("answers", "both")
        if self._verifier is None:
            return not self.losses
        return not self._verifier.needs_answer or any(task.answer for task in self.held_out) or not self.losses

    @cached_property
    def losses(self) -> list[Stage]:
        """The stages whose given texts in the held-out tasks are measured by their likelihood."""
        if self.recipe.evaluation.by in ("answers", "none"):
            return []
        return [stage for stage in self.recipe.stages.values() if stage.learns_from & self._there]

    @cached_property
    def _there(self) -> frozenset[Given]:
        """Which given texts the held-out tasks have."""
        found: dict[Given, bool] = {
            "demonstrations": any(task.demonstrations or task.episodes for task in self.held_out),
            "preferences": any(task.preferences for task in self.held_out),
            "rated completions": any(task.rated for task in self.held_out),
        }
        return frozenset(name for name, there in found.items() if there)

    @property
    def measured(self) -> str:
        """What is measured on the held-out tasks, in a sentence."""
        if not self.held_out:
            return "nothing is held out or measured, as evaluation.by=none sets"
        samples, parts = self.recipe.evaluation.samples, []
        if self.answered:
            more = f" and {samples} samples" if samples else ""
            parts.append(f"{len(self.held_out)} tasks, scored by {self.verifier.kind}, greedy{more}")
        if self.losses:
            parts.append(f"the likelihood of the {self._texts} of {len(self.held_out)} tasks, without sampling")
        return "; ".join(parts)

    @property
    def _texts(self) -> str:
        """What the measured stages learn from."""
        return " and ".join(sorted({what for stage in self.losses for what in stage.learns_from & self._there}))

    def check_measures(self) -> None:
        """Raise `UserError` where nothing that was asked for can be measured; note what is left out."""
        by = self.recipe.evaluation.by
        if by in ("loss", "both") and not self.losses:
            raise UserError(
                f"evaluation.by is {by}, but no held-out task has demonstrations or pairs that a stage of this recipe "
                "learns from; leave it out, or write evaluation.by=answers"
            )
        if by == "auto" and self.losses and not self.answered:
            why = "there is no verifier" if self._verifier is None else f"none has an answer for {self._verifier.kind}"
            self.notes.append(
                f"held-out tasks are measured by the likelihood of their {self._texts}; they are not answered, since "
                f"{why}"
            )

    @property
    def _verifier(self) -> Reward | None:
        """The evaluation's own verifier, else the reward of the last stage with one."""
        rewards = self._training_rewards
        return self.recipe.evaluation.verifier or (rewards[-1] if rewards else None)

    @cached_property
    def verifier(self) -> Reward:
        """Scores the held-out answers. Raises `UserError` where the recipe has nothing to score with."""
        if self._verifier is None:
            raise UserError(
                "evaluation.verifier is needed: no stage of this recipe has a reward to score with; without one, "
                "evaluation.by=loss measures the likelihood of held-out demonstrations and pairs, and "
                "evaluation.by=none nothing"
            )
        return self._verifier

    @cached_property
    def rewards(self) -> list[Reward]:
        """All rewards of the run: those of stages and of their selections, and the verifier."""
        chosen_by = (getattr(stage.selection, "reward", None) for stage in self.recipe.stages.values())
        selecting = [reward for reward in chosen_by if isinstance(reward, Reward)]
        if not self.answered:
            return [*self._training_rewards, *selecting]
        others = [r for r in (*self._training_rewards, *selecting) if r is not self.verifier]
        return [*others, self.verifier]

    @property
    def _training_rewards(self) -> list[Reward]:
        found = (getattr(stage, "reward", None) for stage in self.recipe.stages.values())
        return [reward for reward in found if isinstance(reward, Reward)]

    @cached_property
    def sampling(self) -> Sampling:
        """Sampling of held-out answers: the evaluation's own, else that of the last stage that samples."""
        if self.recipe.evaluation.sampling is not None:
            return self.recipe.evaluation.sampling
        rollouts = [*self._rollouts, self.recipe.evaluation.rollout]
        found = [s for r in rollouts if isinstance(s := getattr(r, "sampling", None), Sampling)]
        return found[-1] if found else Sampling()

    @cached_property
    def rollout(self) -> Rollout | None:
        """The rollout for held-out tasks: the evaluation's own, else that of the last stage that samples."""
        found = [*self._rollouts, *([self.recipe.evaluation.rollout] if self.recipe.evaluation.rollout else [])]
        return found[-1] if found else None

    @property
    def _rollouts(self) -> list[Rollout]:
        found = (getattr(stage, "rollout", None) for stage in self.recipe.stages.values())
        return [rollout for rollout in found if isinstance(rollout, Rollout)]

    @cached_property
    def together(self) -> str | None:
        """The field by which a reward scores tasks together: those of a value are held out, or trained on, together.

        Raises `UserError` for rewards with different ones.
        """
        verifier = self.recipe.evaluation.verifier
        used = [*self._training_rewards, *([verifier] if verifier is not None else ())]
        fields = sorted({reward.together for reward in used if reward.together is not None})
        if len(fields) > 1:
            raise UserError(
                f"rewards of this recipe score tasks together by different fields, {' and '.join(fields)}, and tasks "
                "are held out by one; take the same in all stages and in evaluation.verifier"
            )
        return fields[0] if fields else None

    def _first(self, tasks: list[Task], count: int) -> list[Task]:
        """The first tasks of a test set, or those of the first lists that are scored together."""
        if self.together is None:
            return tasks[:count]
        kept = {place for places in lists_in(tasks, self.together)[:count] for place in places}
        return [task for place, task in enumerate(tasks) if place in kept]

    def _distinct(self, tasks: Iterable[Task]) -> list[Task]:
        """Held-out tasks, one per prompt: equal prompts have equal answers, which are not independent.

        In environments of several turns the prompt is not the whole problem, and all tasks stay; so they do where a
        reward scores several together.
        """
        tasks = list(tasks)
        if self.together is not None:
            return tasks
        if self.rollout is not None and self.rollout.held_out(1, self.sampling) is not None:
            return tasks
        kept, merged, conflicts = distinct(tasks)
        if merged:
            other = f", of which {conflicts} had another reference answer than the first" if conflicts else ""
            self.notes.append(f"merged {merged} of {len(tasks)} held-out rows whose prompt is another row's{other}")
        return list(kept)

    def _without_held_out(self, stage: Stage, name: str) -> list[Task]:
        """A stage's tasks, none of which is in the held-out set."""
        if stage.tasks is None:
            return self._apart(self.train, f"stage {name}")
        return self._kept(f"stages.{name}.tasks", stage.tasks, f"stage {name}")

    def _kept(self, place: str, source: Tasks, name: str) -> list[Task]:
        """The tasks of a source, none of which is in the held-out set."""
        return self._apart(self._load(source, place), name)

    def _apart(self, tasks: Sequence[Task], name: str) -> list[Task]:
        """Those of the tasks that are not in the held-out set; notes how many are left out."""
        kept, removed = exclude(tasks, self.held_out)
        if removed:
            self.notes.append(f"{name}: left out {removed} tasks that are in the held-out set")
        rule = self.recipe.evaluation.decontamination
        if rule is not None and self.held_out:
            kept, matched = rule.clean(kept, self.held_out)
            self.notes.append(f"{name}: left out {matched} of {matched + len(kept)} tasks, {rule.description}")
        return [replace(task, asked=None) if task.asked else task for task in kept]

    def _load(self, tasks: Tasks, place: str) -> Sequence[Task]:
        """All tasks of a source; records their digest."""
        loaded = load(tasks)
        self._places.append(tasks.place)
        self.digests[place] = digest_of(loaded)
        self.files |= tasks.fingerprint
        self.allows_special_tokens |= tasks.allows_special_tokens
        policy = self.recipe.models.get("policy")
        if policy is None or not policy.chat or not any(isinstance(task.prompt, str) for task in loaded):
            return loaded
        self.notes.append(
            f"{place}: prompts that are text are given as a user's message, by the chat template of '{policy.source}'; "
            "models.policy.chat=false gives them as they are"
        )
        return [as_chat(task) for task in loaded]


def as_chat(task: Task) -> Task:
    """The task with a prompt of chat messages."""
    task = replace(task, asked=as_chat(task.asked)) if task.asked else task
    if not isinstance(task.prompt, str):
        return task
    return replace(task, prompt=(Message(role="user", content=task.prompt),))


def _as_asked(task: Task) -> Task:
    """The task as evaluation puts it."""
    return task.asked or task


def load(tasks: Tasks) -> Sequence[Task]:
    """All tasks of a source. Raises `UserError` if there is none."""
    loaded = tasks.load()
    if not loaded:
        raise UserError(f"the tasks of kind '{tasks.kind}' are empty; a run needs at least two")
    return loaded


def note_of_special_tokens(tasks: Sequence[Task], special: Collection[str], allowed: bool) -> str:
    """A note on the number of tasks with texts of special tokens, and how these are read; empty if there is none."""
    found = [[token for token in special if token and any(token in text for text in _texts_of(task))] for task in tasks]
    count = sum(map(bool, found))
    if not count:
        return ""
    named = ", ".join(sorted(set().union(*found)))
    taken = "a special token, as tasks.special_tokens=allow sets" if allowed else "text, not a special token"
    other = "" if allowed else "; if they are intended, set tasks.special_tokens=allow"
    return f"{count} of {len(tasks)} tasks hold {named} in their texts, each taken for {taken}{other}"


def _texts_of(task: Task) -> list[str]:
    """All texts of a task that a model reads or imitates."""
    prompts = [task.prompt] if isinstance(task.prompt, str) else [message["content"] for message in task.prompt]
    pairs = [text for pair in task.preferences for text in (pair.chosen, pair.rejected)]
    utterances = [utterance.text for episode in task.episodes for utterance in episode]
    return [*prompts, *task.demonstrations, *pairs, *utterances, *(rated.completion for rated in task.rated)]
