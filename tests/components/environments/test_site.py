"""Right and wrong links by hand."""

import asyncio
from itertools import product

import pytest

from posttrain.components.environments.site import LETTERS, Site, right_link
from posttrain.types import Task
from tests.components.environments.playing import play

TASK = Task(key="a", prompt="")


def way(environment: Site, task: Task) -> list[str]:
    async def walked() -> list[str]:
        instance, links = environment.instance(task, lambda: 0.0), list[str]()
        for _ in range(environment.pages):
            links.append(str(await instance.solution()))
            await instance.step(links[-1])
        return links

    return asyncio.run(walked())


def test_each_page_has_one_right_link_for_each_letter() -> None:
    for page in range(4):
        assert sorted(right_link(page, letter) for letter in LETTERS) == list(LETTERS)


def test_only_four_right_links_reach_the_goal() -> None:
    links = way(Site(), TASK)
    _, outcomes, verdict, measures = play(Site(), TASK, links)
    assert outcomes[-1].done and verdict is not None and verdict.solved
    assert measures == {"right_links": 4.0, "regret": 0.0}
    other = next(letter for letter in LETTERS if letter != links[0])
    _, outcomes, verdict, _ = play(Site(), TASK, [other, *links[1:]])
    assert outcomes[-1].done and verdict is not None and not verdict.solved
    _, outcomes, _, _ = play(Site(pages=2), TASK, ["ab", "c", "d"])
    assert [o.valid for o in outcomes] == [False, True]


def test_the_flawed_player_is_wrong_on_two_letters_of_five() -> None:
    right = flawed = 0
    for number in range(100):
        task = Task(key=str(number), prompt="")
        verdict = play(Site(), task, way(Site(), task))[2]
        right += verdict is not None and verdict.solved
        verdict = play(Site(), task, way(Site(flawed=True), task))[2]
        flawed += verdict is not None and verdict.solved
    assert right == 100 and 4 <= flawed <= 25, "(3/5)^4 is 13 %"


def test_spare_links_lead_back_to_the_page() -> None:
    environment = Site(pages=2, spare=1)
    first, second = way(environment, TASK)
    wrong, other = (next(letter for letter in LETTERS if letter != right) for right in (first, second))
    begun, outcomes, verdict, measures = play(environment, TASK, [wrong, first, second])
    assert outcomes[0].observation == begun and verdict is not None and verdict.solved
    assert [o.done for o in outcomes] == [False, False, True] and measures == {"right_links": 2.0, "regret": 0.0}
    _, outcomes, verdict, _ = play(environment, TASK, [wrong, first, other])
    assert outcomes[-1].done and verdict is not None and not verdict.solved


@pytest.mark.parametrize("environment", [Site(pages=2), Site(pages=2, spare=1)])
def test_the_regret_is_what_all_ways_miss_of_the_best(environment: Site) -> None:
    plays = [play(environment, TASK, links) for links in product(LETTERS, repeat=2 + environment.spare)]
    values = [verdict.value for _, _, verdict, _ in plays if verdict is not None]
    assert max(values) == 1.0 and min(values) == 0.0
    assert [measures["regret"] for *_, measures in plays] == [max(values) - value for value in values]
