"""Check or play an environment: one of this package, of another library, or a class of one's own.

check plays random episodes (legal actions, calls of its tools, or the words given with --action) and answers: does an
episode repeat, also in company? do failures stay in their episode? what is lost when a run goes on in another process?
how many steps a second? what does the solver, or a random player, get? It plays up to eight episodes, and fewer (two at
least) of one that is slow, so that the check takes about --seconds.

play shows an episode in the terminal and takes the turns from standard input; with --policy solver or legal it plays by
itself.

SOURCE is as in world=SOURCE: mine.py:Shop, FrozenLake-v1, library:name; or the kind of an environment of this package.
Episodes are the tasks of tasks=..., as in a recipe. Without them, what reset() must have is filled with stand-ins.

    posttrain world check mine.py:Shop
    posttrain world check mine.py:Shop tasks=orders.jsonl
    posttrain world play FrozenLake-v1 --policy legal
    posttrain world play mine.py:Shop --policy solver --seed 3
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

import click

from posttrain.cli._output import print_json, trusting, verb
from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.components.environments import Contained, Environment, Observation, Resumes
    from posttrain.types import Task

EPISODES = 8
ROUNDS = 5
"""How often the check plays an episode, about: alone, again, in company, by the solver, with faults."""
LOST: "Final[dict[Resumes, str]]" = {
    "replay": "nothing: its actions are performed again",
    "record": "what a server held in memory: its answers come from the record",
    "anew": "an episode that has not ended, which starts again",
}
"""What is lost of an episode when its run goes on in another process."""


@verb
@trusting
@click.argument("what", type=click.Choice(["check", "play"]))
@click.argument("source")
@click.argument("settings", nargs=-1, metavar="[tasks=TASKS] [NAME=VALUE]...")
@click.option("--policy", type=click.Choice(["solver", "legal", "none"]), default="none", help="Who plays.")
@click.option("--action", "actions", multiple=True, help="A turn to choose from, where no legal ones are listed.")
@click.option("--seed", default=0, show_default=True, help="Which episode.")
@click.option("--turns", default=20, show_default=True, help="Most turns of an episode.")
@click.option("--seconds", default=120.0, show_default=True, help="About how long a check may take.")
def command(
    what: str,
    source: str,
    settings: tuple[str, ...],
    policy: str,
    actions: tuple[str, ...],
    seed: int,
    turns: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Checks or plays."""
    from posttrain.components.environments import EnvironmentFailed
    from posttrain.errors import UserError

    given = [setting for setting in settings if setting.startswith(("tasks=", "tasks."))]
    environment = _environment(source, [setting for setting in settings if setting not in given])
    tasks, made_up = _tasks(environment, given, seed)
    environment.check([tasks(0)])
    if made_up:
        click.echo(f"stand-ins are given for {', '.join(made_up)}; tasks=FILE has the values of your tasks", err=True)
    try:
        if what == "play":
            played = asyncio.run(_play(environment, policy, seed, turns, not as_json, tasks))
            if as_json:
                print_json(played)
            return
        found = asyncio.run(_check(environment, actions, seed, turns, seconds, tasks))
    except EnvironmentFailed as error:
        raise UserError(str(error)) from None
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        click.echo(f"{name.replace('_', ' '):28} {value if not isinstance(value, float) else f'{value:.4g}'}")
    if not found["repeats"]:
        click.echo(
            "A run in it is refused unless repeatable=false is set: it cannot be repeated or resumed to the bit."
        )


def _environment(source: str, settings: Sequence[str]) -> "Environment":
    from posttrain.cli._component import component
    from posttrain.components.environments import Environment

    if source in Environment.kinds():
        return component(Environment, source, settings)
    return component(Environment, "foreign", [f"source={source}", "repeatable=false", *settings])


def _task(seed: int, stand_ins: Sequence[str] = ()) -> "Task":
    from posttrain.types import Task

    fields = {"cells": 4, **{name: f"{name} {seed}" for name in stand_ins}}
    return Task(key=f"episode {seed}", prompt="", answer="42", fields=fields)


def _tasks(environment: "Environment", given: Sequence[str], seed: int) -> "tuple[Callable[[int], Task], list[str]]":
    """The task of each episode, and the fields that stand-ins are given for. Tasks are read as a recipe reads them."""
    if given:
        from posttrain.recipes.files import find_recipe

        loaded = find_recipe("grpo", given).tasks.load()
        return (lambda index: loaded[(seed + index) % len(loaded)]), []
    needed = getattr(environment, "described", {}).get("fields", {})
    made_up = [name for name, required in needed.items() if required and name not in ("prompt", "answer", "cells")]
    return (lambda index: _task(seed + index, made_up)), made_up


class _Player:
    """Takes the turns of one episode."""

    def __init__(self, policy: str, actions: Sequence[str], seed: int) -> None:
        self._policy, self._actions, self._random = policy, actions, Random(seed)

    async def turn(self, instance: "Contained", seen: "Observation") -> str | None:
        """The next turn; None where this player has none."""
        if self._policy == "solver" and (text := await instance.solution()) is not None:
            return text
        if choices := seen.legal or self._actions:
            return self._random.choice(choices)
        return None if self._policy == "none" else await instance.example()


async def _episode(environment: "Environment", task: "Task", player: _Player, chance: int, turns: int) -> list[Any]:
    """What an episode shows, as plain values."""
    async with environment.open(task, Random(chance).random) as instance:
        seen = instance.begin()
        story: list[Any] = [seen.text]
        rewarded = 0.0
        for _ in range(turns):
            text = await player.turn(instance, seen)
            outcome = await instance.step("" if text is None else text)
            seen = outcome.observation
            rewarded += outcome.reward
            story += [text, seen.text, outcome.reward, outcome.done]
            if outcome.done:
                break
        await instance.finish()
        verdict = instance.verdict()
        return [*story, rewarded + (verdict.value if verdict else 0.0)]


async def _check(
    environment: "Environment",
    actions: Sequence[str],
    seed: int,
    turns: int,
    limit: float = 120.0,
    tasks: "Callable[[int], Task] | None" = None,
) -> dict[str, Any]:
    """The answers, by question."""
    task = tasks or _tasks(environment, (), seed)[0]

    async def played(policy: str, index: int) -> list[Any]:
        player = _Player(policy, actions, seed + index)
        return await _episode(environment, task(index), player, seed + index, turns)

    began = time.perf_counter()
    alone = [await played("legal", 0)]
    count = max(2, min(EPISODES, int(limit / ROUNDS / (time.perf_counter() - began))))
    alone += [await played("legal", index) for index in range(1, count)]
    seconds = time.perf_counter() - began
    again = [await played("legal", index) for index in range(count)]
    together = list(await asyncio.gather(*(played("legal", index) for index in range(count))))
    solved = [await played("solver", index) for index in range(count)]
    steps = sum((len(story) - 2) // 4 for story in alone)
    async with environment.open(task(0), Random(0).random) as instance:
        has_solver = await instance.solution() is not None
        listed, example = bool(instance.begin().legal), await instance.example()
    drawn = "legal actions" if listed else "--action" if actions else "empty" if example is None else "its examples"
    mean = sum(story[-1] for story in solved) / count
    return {
        "episodes": count,
        "repeats": alone == again,
        "repeats_in_company": alone == together,
        "lists_legal_actions": listed,
        "random_turns": drawn,
        "has_solver": has_solver,
        "steps_a_second": steps / seconds,
        "mean_reward_at_random": sum(story[-1] for story in alone) / count,
        "mean_reward_of_solver": mean if has_solver else None,
        "survives_faults": await _survives(environment, task(0), turns),
        "loses_in_another_process": LOST[environment.resumes],
    }


async def _survives(environment: "Environment", task: "Task", turns: int) -> bool:
    """Whether words that no environment expects end at most their own episode."""
    from posttrain.components.environments import EnvironmentFailed

    for word in ("", "\n", "\0", "(" * 3000, "f" * 10_000, "<tool_call>", '{"name": 1}'):
        try:
            await _episode(environment, task, _Player("none", [word], 0), 0, min(turns, 3))
        except EnvironmentFailed:
            continue
    return True


async def _play(
    environment: "Environment", policy: str, seed: int, turns: int, shown: bool, tasks: "Callable[[int], Task]"
) -> list[Any]:
    """Play one episode, and show it."""
    if policy == "solver":
        async with environment.open(tasks(0), Random(seed).random) as instance:
            if await instance.solution() is None:
                raise UserError(
                    "this environment has no solver; --policy legal draws its turns, or play it yourself, without "
                    "--policy"
                )
    if policy != "none":
        story = await _episode(environment, tasks(0), _Player(policy, (), seed), seed, turns)
        if story[1:2] == [None]:
            raise UserError(
                "this environment lists no legal actions and shows no examples, so no one plays it; play it yourself, "
                "without --policy"
            )
        if shown:
            _show(story)
        return story
    story = []
    async with environment.open(tasks(0), Random(seed).random) as instance:
        seen = instance.begin()
        for _ in range(turns):
            click.echo(seen.text.strip("\n"), err=not shown)
            text = await asyncio.to_thread(click.prompt, ">", default="", show_default=False, err=not shown)
            outcome = await instance.step(text)
            seen = outcome.observation
            story += [text, seen.text, outcome.reward, outcome.done]
            if outcome.done:
                break
        await instance.finish()
        verdict = instance.verdict()
        ended = "" if verdict is None else f"value {verdict.value:.4g}, {'' if verdict.solved else 'not '}solved"
        total = sum(story[2::4]) + (0.0 if verdict is None else verdict.value)
        click.echo(f"{seen.text.strip()}\n{ended or 'no verdict'}; rewards sum to {total:.4g}", err=not shown)
    return story


def _show(story: list[Any]) -> None:
    """Print an episode: what it shows, the turns, and their rewards."""
    click.echo(str(story[0]).strip("\n"))
    for place in range(1, len(story) - 1, 4):
        text, seen, reward, done = story[place : place + 4]
        click.echo(f"> {text}\n{str(seen).strip()}\nreward {reward:.4g}{', the end' if done else ''}")
    click.echo(f"rewards sum to {story[-1]:.4g}")
