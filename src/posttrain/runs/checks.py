"""Checks of a resolved recipe with its tasks and models, before anything is sampled.

Each check yields warnings about settings that do less than they seem to, and raises `UserError` where nothing could be
learned. Warnings are shown by the dry run and by the run, and are events in the record. A new check is a function in
`CHECKS`.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from posttrain.component import nearest
from posttrain.components.advantages import Advantage
from posttrain.components.curricula import Curriculum
from posttrain.components.filters import Filter
from posttrain.components.rewards import Reward
from posttrain.components.rollouts import Rollout
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import first_places
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.recipes.tree import Recipe
from posttrain.runs.problems import Problems
from posttrain.stages import Models, Stage
from posttrain.training.settings import Learning
from posttrain.types import Message, Task


@dataclass(frozen=True)
class Subject:
    """What is checked."""

    recipe: Recipe
    problems: Problems
    models: Models

    def stages(self) -> "Iterator[StageSubject]":
        """Every stage, with the parts that checks read."""
        for name, stage in self.recipe.stages.items():
            rollout, reward = getattr(stage, "rollout", None), getattr(stage, "reward", None)
            advantage, filters = getattr(stage, "advantage", None), getattr(stage, "filters", {})
            curriculum = getattr(stage, "curriculum", None)
            yield StageSubject(
                name=name,
                stage=stage,
                tasks=self.problems.of(stage),
                source=stage.tasks or self.recipe.tasks,
                rollout=rollout if isinstance(rollout, Rollout) else None,
                reward=reward if isinstance(reward, Reward) else None,
                advantage=advantage if isinstance(advantage, Advantage) else None,
                filters=filters,
                curriculum=curriculum if isinstance(curriculum, Curriculum) else None,
            )


@dataclass(frozen=True, kw_only=True)
class StageSubject:
    """A stage, with None for the parts that it does not have."""

    name: str
    stage: Stage
    tasks: Sequence[Task]
    source: Tasks
    rollout: Rollout | None
    reward: Reward | None
    advantage: Advantage | None
    filters: Mapping[str, Filter]
    curriculum: Curriculum | None

    @property
    def sampling(self) -> Sampling | None:
        """How the rollouts are sampled."""
        sampling = getattr(self.rollout, "sampling", None)
        return sampling if isinstance(sampling, Sampling) else None

    @property
    def size(self) -> int | None:
        """Rollouts per group, where it is fixed."""
        return self.rollout.group_size if self.rollout is not None else None


Check = Callable[[Subject], Iterable[str]]


def warnings_of(recipe: Recipe, problems: Problems, models: Models) -> list[str]:
    """The warnings of all checks, in order. Raises `UserError` where nothing could be learned."""
    subject = Subject(recipe, problems, models)
    return [warning for check in CHECKS for warning in check(subject)]


def groups_of_one(subject: Subject) -> Iterable[str]:
    """Groups of one rollout, with an advantage or a filter that compares the rollouts of a group."""
    for stage in subject.stages():
        if stage.size != 1:
            continue
        if stage.advantage is not None and stage.advantage.is_relative:
            raise UserError(
                f"stage {stage.name}: rollout.n is 1, and {stage.advantage.kind} compares the rewards "
                "of a task's rollouts with one another, so every advantage would be 0 and nothing would be learned. "
                "Set rollout.n to 2 or more, or take an advantage with another baseline"
            )
        if stage.curriculum is not None and stage.curriculum.needs_several:
            raise UserError(
                f"stage {stage.name}: rollout.n is 1, and the curriculum {stage.curriculum.kind} learns from "
                "differences between the rewards of a task's rollouts, so it would learn nothing. Set rollout.n to 2 "
                "or more, or take curriculum=uniform"
            )
        for name, member in stage.filters.items():
            if member.needs_several:
                raise UserError(
                    f"stage {stage.name}: rollout.n is 1, and filters.{name} ({member.kind}) drops "
                    "groups whose rewards are equal, so it would drop every group. Set rollout.n to 2 or more, "
                    f"or leave the filter out: filters.{name}=null"
                )
    return ()


def episodes_in_rows(subject: Subject) -> Iterable[str]:
    """Episodes of several rows, with an advantage that compares rows."""
    for stage in subject.stages():
        if stage.rollout is None or not stage.rollout.splits_episodes or stage.advantage is None:
            continue
        if stage.advantage.is_relative:
            raise UserError(
                f"stage {stage.name}: in rollouts of kind {stage.rollout.kind} an episode may be several rows, and "
                f"{stage.advantage.kind} would count each of them in the statistics of its group; take "
                "advantage=by_episode, which counts episodes"
            )
    return ()


def greedy_rollouts(subject: Subject) -> Iterator[str]:
    """Training rollouts without randomness."""
    for stage in subject.stages():
        if stage.size is None or stage.sampling is None or stage.sampling.temperature > 0:
            continue
        single_turn = stage.rollout is not None and stage.rollout.held_out(1, stage.sampling) is None
        relative = stage.advantage is not None and stage.advantage.is_relative
        if relative and single_turn:
            raise UserError(
                f"stage {stage.name}: rollout.sampling.temperature is 0, so all {stage.size} rollouts of a task are "
                f"the same, and an advantage that compares them would learn nothing. Sample with "
                "temperature 1"
            )
        yield (
            f"stage {stage.name}: rollout.sampling.temperature is 0, so a task always gets the same completion and "
            "nothing else is tried; temperature 1 samples from the policy itself"
        )


def judges_itself(subject: Subject) -> Iterator[str]:
    """A policy that learns from verdicts of its own, or of what it was at the start."""
    models = subject.recipe.models
    for stage in subject.stages():
        learner, judges = (
            getattr(stage.stage, "role", "policy"),
            stage.reward.judges if stage.reward is not None else (),
        )
        for role in sorted(judges):
            model, own = models.get(role), models.get(learner)
            if model is None or own is None:
                continue
            copied = not model.trained and model.source in (f"role:{learner}", own.source)
            if role != learner and not copied:
                continue
            what = "the policy" if role == learner else f"a copy of the policy (models.{role}.source={model.source})"
            yield (
                f"stage {stage.name}: its judge is {what}, which may prefer texts of its own kind and whose faults the "
                "policy has as well; a judge of another source errs elsewhere, and posttrain audit --judge measures "
                "a preference for the judge's own style"
            )


def heads_read_elsewhere(subject: Subject) -> Sequence[str]:
    """A head that was trained to be read at a token that the policy does not write."""
    for stage in subject.stages():
        for role in sorted(stage.reward.reads_sampled if stage.reward is not None else ()):
            model = subject.recipe.models.get(role)
            if model is not None and model.read_at is not None:
                raise UserError(
                    f"stage {stage.name}: the head of models.{role} is read at '{model.read_at}', and the reward reads "
                    "what the policy sampled, which ends with its end token; set own_tokens=true in the reward, or "
                    f"leave models.{role}.read_at out"
                )
    return ()


def rewards_of_parts(subject: Subject) -> Iterator[str]:
    """Rewards of parts of a completion, with an advantage that makes something else of token rewards."""
    for stage in subject.stages():
        if stage.reward is None or stage.advantage is None:
            continue
        reads = stage.advantage.reads
        if stage.reward.undiscounted and reads == "tokens":
            raise UserError(
                f"stage {stage.name}: the rewards of single steps by '{stage.reward.kind}' have a meaning only as "
                f"undiscounted sums to the end, and advantage '{stage.advantage.kind}' weighs tokens otherwise; set "
                "advantage.gamma=1 and advantage.lam=1, or leave out the differences (reward.delta=false)"
            )
        if stage.reward.spans and reads == "sum" and not stage.advantage.credits_spans:
            yield (
                f"stage {stage.name}: reward '{stage.reward.kind}' rewards parts of completions, and advantage "
                f"'{stage.advantage.kind}' reads only their sum, so where they are makes no difference; gae and "
                "reinforce_plus_plus read it"
            )


def short_context(subject: Subject) -> Iterator[str]:
    """A token limit that the model's context does not have room for."""
    policy = subject.models["policy"]
    context = policy.context
    for stage in subject.stages():
        if stage.sampling is None or not stage.tasks:
            continue
        limit = stage.sampling.max_tokens
        longest = max(map(policy.prompt_length, stage.tasks))
        if longest + limit > context:
            yield (
                f"stage {stage.name}: rollout.sampling.max_tokens is {limit}, but with the longest prompt of {longest} "
                f"tokens the policy's context of {context} has room for {context - longest}; longer completions are "
                "truncated there"
            )


def many_threads(subject: Subject) -> Iterator[str]:
    """More threads than processors."""
    threads, cores = subject.recipe.threads, os.cpu_count() or 1
    if threads is not None and threads > cores:
        yield f"threads is {threads}, but this machine has {cores} processors; more threads only wait for one another"


def small_holdout(subject: Subject) -> Iterator[str]:
    """Fewer held-out tasks than requested."""
    settings, found = subject.recipe.evaluation, len(subject.problems.held_out)
    if settings.by != "none" and settings.tasks is None and found < settings.holdout:
        yield (
            f"evaluation.holdout is {settings.holdout}, but only {found} tasks could be held out: at most half of the "
            "different prompts"
        )


def missing_answers(subject: Subject) -> Iterator[str]:
    """Tasks without the reference answer that a reward compares with."""
    for stage in subject.stages():
        missing = [task for task in stage.tasks if not task.answer]
        if stage.reward is None or not stage.reward.needs_answer or not missing:
            continue
        if len(missing) == len(stage.tasks):
            raise UserError(
                f"stage {stage.name}: none of the {len(missing)} tasks has an answer, which {stage.reward.kind} "
                f"compares with, so no rollout could be scored ({_places(missing, stage.source)}). Name the column of "
                "the answer (tasks.columns.answer=COLUMN), or take a reward that needs none"
            )
        yield _unanswered(f"stage {stage.name}", missing, stage.tasks, stage.reward, stage.source)
    problems, evaluation = subject.problems, subject.recipe.evaluation
    missing = [task for task in problems.held_out if not task.answer]
    if missing and problems.answered and problems.verifier.needs_answer:
        source = evaluation.tasks or subject.recipe.tasks
        yield _unanswered("evaluation", missing, problems.held_out, problems.verifier, source)


def _unanswered(who: str, missing: Sequence[Task], tasks: Sequence[Task], reward: Reward, source: Tasks) -> str:
    return (
        f"{who}: {len(missing)} of {len(tasks)} tasks have no answer, which {reward.kind} compares with, so they "
        f"cannot be scored ({_places(missing, source)}); fill in the answers or remove the rows"
    )


def _places(tasks: Sequence[Task], source: Tasks) -> str:
    """Where tasks are in their files, or their first keys."""
    places = [source.place(task.key) for task in tasks]
    if all(places):
        return first_places(places)
    return f"the first is task {tasks[0].key}"


def forgotten_thoughts(subject: Subject) -> Iterator[str]:
    """A chat template that leaves out earlier thoughts, where conversations have several turns."""
    tokenizer = getattr(subject.models["policy"], "tokenizer", None)
    if tokenizer is None or not getattr(tokenizer, "has_chat_template", False):
        return
    for stage in subject.stages():
        turns = stage.rollout is not None and getattr(stage.rollout, "max_turns", 1) > 1
        thought = any(_has_thoughts(task) for task in stage.tasks)
        chats = any(not isinstance(task.prompt, str) for task in stage.tasks)
        if chats and (turns or thought) and _drops_thoughts(tokenizer.render_chat):
            what = "rollouts keep the thoughts of earlier turns" if turns else "conversations hold earlier thoughts"
            yield (
                f"stage {stage.name}: the policy's chat template leaves out <think>...</think> of all turns but the "
                f"last, and {what}: the model is not given the same text in training and in a chat. Change the "
                "template, or leave the thoughts out of the data"
            )


def _has_thoughts(task: Task) -> bool:
    """Whether an earlier turn of the assistant has a thought."""
    messages = () if isinstance(task.prompt, str) else task.prompt
    return any(message["role"] == "assistant" and "<think>" in message["content"] for message in messages)


def _drops_thoughts(render: Callable[[Sequence[Message]], str]) -> bool:
    """Whether the template leaves out a thought before the last question, and keeps what follows it."""
    asked, again = Message(role="user", content="FIRST"), Message(role="user", content="SECOND")
    reply = Message(role="assistant", content="<think>\nTHOUGHT\n</think>\n\nREPLY")
    text = render([asked, reply, again])
    return "THOUGHT" not in text and "REPLY" in text


def samples_elsewhere(subject: Subject) -> Iterator[str]:
    """An engine that cannot sample what the recipe requires."""
    recipe = subject.recipe
    if not recipe.engine.samples_here and recipe.cluster.kind != "local":
        raise UserError(
            f"engine={recipe.engine.kind} samples on servers that you start, and cluster={recipe.cluster.kind} starts "
            "samplers of its own; leave one of them out"
        )
    for role in sorted(recipe.cluster.roles - recipe.models.keys()):
        raise UserError(f"cluster.calls names the role '{role}'; {nearest(role, recipe.models)}")
    recipe.engine.check(dict(_samplings(recipe, "")))
    yield from ()


def _samplings(part: Any, path: str) -> Iterator[tuple[str, Sampling]]:
    """All settings of sampling in a recipe, by path."""
    if isinstance(part, Sampling):
        yield path, part
    elif isinstance(part, Mapping):
        for name, value in part.items():
            yield from _samplings(value, f"{path}.{name}")
    elif is_dataclass(part) and not isinstance(part, type):
        for own in fields(part):
            yield from _samplings(getattr(part, own.name), f"{path}.{own.name}".lstrip("."))


def learnings_of(stage: Stage) -> Iterator[tuple[str, Learning]]:
    """The learners' settings of a stage, by field."""
    for own in fields(stage):  # type: ignore[arg-type]
        value = getattr(stage, own.name)
        if isinstance(value, Learning):
            yield own.name, value


def moments_to_carry(subject: Subject) -> Iterable[str]:
    """Moments that no earlier stage can leave."""
    before: set[str] = set()
    for name, stage in subject.recipe.stages.items():
        for field, own in learnings_of(stage):
            if own.carried and own.optimizer.kind not in before:
                raise UserError(
                    f"stages.{name}.{field}.carried: no stage before it trains with the optimizer "
                    f"'{own.optimizer.kind}', so there are no moments to go on with; leave it out"
                )
        before |= {own.optimizer.kind for _, own in learnings_of(stage)}
    return ()


CHECKS: tuple[Check, ...] = (
    moments_to_carry,
    samples_elsewhere,
    groups_of_one,
    episodes_in_rows,
    greedy_rollouts,
    rewards_of_parts,
    judges_itself,
    heads_read_elsewhere,
    short_context,
    many_threads,
    small_holdout,
    missing_answers,
    forgotten_thoughts,
)
"""All checks, in the order of their warnings."""
