"""The Python interface: what ``import posttrain`` gives. The same code runs behind the command line.

    result = posttrain.run("grpo", tasks=[{"prompt": "2+3=", "answer": "5"}, ...], reward=score, steps=20)

Data and functions that are given as objects are written into the runs' folder, named after their content, so that a
run's ``recipe.yaml`` is complete and another process can resume the run.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.component import Component
from posttrain.component.user_code import allowing, find_code, remember_own
from posttrain.components.rewards import Reward
from posttrain.components.tasks import Tasks
from posttrain.datasets.objects import is_data, to_json_lines
from posttrain.errors import UserError
from posttrain.grading.function_place import NotWritable
from posttrain.grading.function_source import spelling_of, written
from posttrain.grading.user_function import hold
from posttrain.recipes.differences import essence
from posttrain.recipes.files import find_recipe, named_code
from posttrain.recipes.following import follow_model
from posttrain.recipes.overrides import assign, from_tree, override, resolve, to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.files import write_file
from posttrain.runs.live import LiveView
from posttrain.runs.results import Result, Table

Changes = Mapping[str, Any] | Sequence[str]
"""Changes by dotted path: ``{"rollout.n": 16}``, or as on the command line: ``["rollout.n=16"]``."""


def recipe(
    name: str | Path | Recipe | Callable[[], Recipe] = "grpo",
    *,
    setting: str | Path | None = None,
    tasks: Any = None,
    reward: Any = None,
    model: str | Path | None = None,
    changes: Changes = (),
    out: str | Path = "runs",
    **settings: Any,
) -> Recipe:
    """A recipe, found and changed.

    Args:
        name: A method or setting that ships, a YAML file, ``file.py:function``, a run's folder, a function, a recipe.
        setting: What a method is applied to; None takes its default setting.
        tasks: A path, a list of rows or prompts, a ``datasets`` data set, a data frame, a generator (read once), or a
            `Tasks` component.
        reward: A function (also with TRL's or verl's parameters), ``file.py:function``, a kind, or a `Reward`; a list
            of them is their sum.
        model: What the policy starts from: a folder, a run's folder, a bundled name.
        changes: Changes by dotted path.
        out: Folder of the runs; data and functions that are given as objects are written there.
        settings: Changes whose path is one word: ``steps=20``, ``lr=1e-5``, ``seed=1``.
    """
    found = _found(name, setting)
    began, written = to_tree(found), list[str]()
    given: dict[str, Any] = dict(settings)
    if model is not None:
        given["model"] = str(model)
    if tasks is not None:
        given["tasks"] = _tasks(tasks, Path(out))
    if reward is not None:
        given["reward"] = _reward(reward, Path(out))
    if isinstance(changes, Mapping):
        given |= changes
    elif changes:
        written += [".".join(resolve(began, change.partition("=")[0].rstrip("+"))) for change in changes]
        found = override(found, list(changes))
    if not given:
        return found
    tree = to_tree(found)
    for path, value in given.items():
        target = resolve(tree, path)
        assign(tree, target, essence(value) if isinstance(value, Component) else _plain(value))
        written.append(".".join(target))
    follow_model(began, tree, written)
    return from_tree(tree, places={path: f"given as {path.replace('.', '_')}" for path in given})


def run(
    name: str | Path | Recipe | Callable[[], Recipe] = "grpo",
    *,
    out: str | Path = "runs",
    quiet: bool = False,
    trust_code: bool = False,
    **given: Any,
) -> Result:
    """Train, and return the result. The arguments are those of `recipe`.

    Ctrl-C (in a notebook: the stop button) ends the run after the step in progress; `resume` continues it.

    Args:
        name: As in `recipe`.
        out: Folder in which the run gets a folder of its own.
        quiet: Show no progress.
        trust_code: Run the code that a recipe file or run of someone else's names, and remember it by its SHA-256.
        given: As in `recipe`.
    """
    from posttrain.runs.launch import start

    with allowing(trust=trust_code):
        found = recipe(name, out=out, **given)
    remember_own(find_code(spelling) for spelling in named_code(found))
    folder, _ = start(found, Path(out), _view(quiet))
    return Result(folder)


def resume(
    folder: str | Path,
    *,
    reward: Callable[..., Any] | None = None,
    changes: Changes = (),
    accept_changes: bool = False,
    trust_code: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Result:
    """Continue a run that was interrupted or killed, bit for bit, or one that has ended: ``resume(RUN, steps=200)``.

    Args:
        folder: The run's folder.
        reward: The run's reward function, if only the process that started the run had it.
        changes: Changes to its recipe that hold from there on, as in `recipe`.
        accept_changes: Accept a ``recipe.yaml`` that was edited.
        trust_code: Run the code that the run names, and remember it by its SHA-256.
        quiet: Show no progress.
        settings: Changes whose path is one word: ``steps=200``.
    """
    from posttrain.grading.user_function import hold_again
    from posttrain.runs import launch

    with allowing(trust=trust_code):
        if reward is not None:
            hold_again(reward, to_tree(find_recipe(str(Path(folder) / "recipe.yaml"))))
        launch.resume(Path(folder), _view(quiet), _words(changes, settings), accept_changes=accept_changes)
    return Result(folder)


def evaluate(
    model: str | Path, tasks: Any = None, verifier: Any = None, *, changes: Changes = (), trust_code: bool = False
) -> dict[str, Any]:
    """Accuracy of a model on tasks with its 95 % interval, and everything else that ``posttrain eval`` prints.

    Args:
        model: A bundled name, a folder, or a run's folder, whose recipe is then used for the rest.
        tasks: As in `recipe`; None takes the held-out tasks of the run's recipe.
        verifier: What scores the answers, as `reward` in `recipe`; None takes the run's.
        changes: Changes to the recipe as on the command line.
        trust_code: Run the code that the run names, and remember it by its SHA-256.
    """
    from posttrain.runs.measuring import answers_of, context_for

    spelled = _words(changes, {})
    if tasks is not None:
        given = _tasks(tasks, Path("runs"))
        spelled.append(f"evaluation.tasks={_spelled(given)}")
        if is_data(tasks):  # a list is evaluated as a whole
            spelled.append(f"evaluation.holdout={len(Path(given).read_bytes().splitlines())}")
    if verifier is not None:
        spelled.append(f"evaluation.verifier={_spelled(_reward(verifier, Path('runs')))}")
    with allowing(trust=trust_code):
        summary, _ = answers_of(context_for(str(model), spelled, None, None))
    return {"model": str(model), **summary}


def sample(model: str | Path, prompt: str, n: int = 1, *, seed: int = 0, chat: bool = False, **sampling: Any) -> Table:
    """Completions of a prompt, one row each, with ``text``, ``token_ids``, ``logp`` and ``stop_reason``.

    Args:
        model: A bundled name, a folder, or a run's folder.
        prompt: Text as is, or, with `chat`, the message of a user.
        n: Number of completions.
        seed: Decides the draws.
        chat: Use the model's chat template.
        sampling: Fields of `posttrain.engines.Sampling`: ``temperature``, ``top_p``, ``max_tokens``, ...
    """
    from posttrain.engines import Sampling, wait_for
    from posttrain.engines.native import Native
    from posttrain.models import Model
    from posttrain.policies.loading import load_policy
    from posttrain.runs.launch import find_device, model_source
    from posttrain.types import Message, Task

    policy = load_policy("policy", Model(source=model_source(str(model))), {}, find_device("auto"))
    sampler = Native().serve(policy, seed).bind("sample")
    segment = sampler.prompt(Task(key="sample", prompt=(Message(role="user", content=prompt),) if chat else prompt))
    if not len(segment):
        raise UserError("the prompt is empty; this model needs at least one token to go on from")
    completions = wait_for(sampler.sample(segment.token_ids, n, Sampling(**sampling), segment.vectors))
    names = ("text", "token_ids", "logp", "stop_reason")
    return Table([{name: getattr(completion, name) for name in names} for completion in completions])


def compare(
    *recipes: str,
    seeds: int = 5,
    measures: Sequence[str] = ("accuracy_after",),
    changes: Sequence[str] = (),
    out: str | Path | None = None,
    jobs: int = 1,
    budget: int | None = None,
) -> dict[str, Any]:
    """Methods over several seeds, with paired intervals: what ``posttrain compare --json`` prints.

    Args:
        recipes: Two or more recipes as on the command line; the first is the baseline.
        seeds: Runs of each.
        measures: Numbers of a summary, or metrics.
        changes: Changes to all of them as on the command line.
        out: Folder of the runs; None takes one that is named after them.
        jobs: Runs at the same time.
        budget: Sampled tokens after which every run ends; None leaves that to its steps.
    """
    from posttrain.runs import comparison

    if len(recipes) < 2:
        raise UserError(f"there must be two recipes or more to compare, got {len(recipes)}")
    return comparison.compare(
        recipes,
        changes,
        seeds=seeds,
        measures=list(measures),
        out=Path(out) if out is not None else None,
        jobs=jobs,
        budget=budget,
        report=lambda text: print(text, flush=True),
    )


def _found(name: Any, setting: str | Path | None) -> Recipe:
    """The recipe that a name, a recipe or a function means."""
    on = [f"setting={setting}"] if setting is not None else []
    if isinstance(name, Recipe | str | Path) and not on:
        return name if isinstance(name, Recipe) else find_recipe(str(name))
    if isinstance(name, str | Path):
        return find_recipe(str(name), on)
    if on:
        raise UserError("setting= is what a method's name is applied to; apply a function or change a recipe yourself")
    if not callable(name):
        raise UserError(f"a recipe is a name, a path, a Recipe or a function that gives one; got {type(name).__name__}")
    made = name()
    if not isinstance(made, Recipe):
        raise UserError(f"{getattr(name, '__name__', name)} returned {type(made).__name__}; it must return a Recipe")
    return made


def _tasks(tasks: Any, out: Path) -> Any:
    """What stands for tasks in a recipe's tree."""
    if isinstance(tasks, Tasks | Mapping):
        return tasks
    if isinstance(tasks, str | Path):
        return str(tasks)
    if not is_data(tasks):
        raise UserError(f"tasks is a {type(tasks).__name__}; give a list of rows, a data set, a data frame, or a path")
    return str(_kept(to_json_lines(tasks), out / "data", "tasks", ".jsonl"))


def _reward(reward: Any, out: Path) -> Any:
    """What stands for a reward in a recipe's tree."""
    if isinstance(reward, list | tuple):
        return [_reward(part, out) for part in reward]
    if isinstance(reward, Reward | Mapping | str) or not callable(reward):
        return str(reward) if isinstance(reward, Path) else reward
    place = spelling_of(reward)
    if place is not None:
        return {"kind": "function", "path": place}
    try:
        name, text = written(reward)
    except NotWritable as error:
        warnings.warn(
            f"the reward function runs in this process, where it cannot be stopped when it hangs, since {error}; "
            "to resume the run, pass it again: posttrain.resume(RUN, reward=...)",
            stacklevel=3,
        )
        return {"kind": "function", "path": hold(reward), "time_limit": None}
    return {"kind": "function", "path": f"{_kept(text.encode(), out / 'functions', name, '.py')}:{name}"}


def _kept(content: bytes, folder: Path, name: str, suffix: str) -> Path:
    """A file with this content, named after it, in a folder."""
    path = folder / f"{name}_{hashlib.sha256(content).hexdigest()[:12]}{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_bytes() != content:
        write_file(path, content)
    return path


def _plain(value: Any) -> Any:
    """A value as a recipe's tree has it."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Component):
        return essence(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value


def _words(changes: Changes, settings: Mapping[str, Any]) -> list[str]:
    """Changes as words of the command line."""
    given = {**changes, **settings} if isinstance(changes, Mapping) else settings
    words = [] if isinstance(changes, Mapping) else list(changes)
    return [*words, *(f"{path}={_spelled(value)}" for path, value in given.items())]


def _spelled(value: Any) -> str:
    """A value as the command line takes it."""
    from posttrain.recipes.differences import spell

    return spell(_plain(value))


def _view(quiet: bool) -> LiveView:
    """Progress where it is seen: a table on a terminal, plain lines elsewhere; nothing if `quiet`."""
    if not quiet:
        return LiveView()
    from rich.console import Console

    return LiveView(lines=True, console=Console(quiet=True))
