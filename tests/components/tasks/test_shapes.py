"""Pictures of shapes: what is drawn is what is asked for, and demonstrations are as imperfect as is stated."""

import json
import re
from itertools import combinations
from typing import Literal

import numpy as np
import pytest

from posttrain.components.tasks.shapes import BACKGROUND, COLOURS, FORMS, LETTERS, Drawn, Shapes, painted
from posttrain.datasets.holdout import exclude, holdout
from posttrain.datasets.images import pixels_of
from posttrain.datasets.keys import problem
from posttrain.types import IMAGE, Task


def stated(task: Task) -> list[dict[str, object]]:
    [text] = task.demonstrations
    found = re.search("<answer>(.*)</answer>", text)
    assert found is not None
    rows: list[dict[str, object]] = json.loads(found[1])
    return rows


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("width", "height"), [(6, 6), (7, 12), (12, 6), (9, 11)])
def test_a_shape_touches_the_four_sides_of_its_box_and_nothing_else(form: str, width: int, height: int) -> None:
    pixels = painted([Drawn("red", form, (3, 5, 3 + width, 5 + height))], 24)
    rows, columns = np.nonzero((pixels == COLOURS["red"]).all(-1))
    assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == (3, 5, 3 + width, 5 + height)
    others = (pixels != COLOURS["red"]).any(-1)
    assert (pixels[others] == BACKGROUND).all()


def test_the_reference_boxes_are_around_what_is_asked_for() -> None:
    for task in Shapes(size=80, shapes=(1, 4)).load():
        [image] = task.images
        pixels = pixels_of(image)
        assert isinstance(task.prompt, str) and task.prompt.endswith(f".{IMAGE}\n")
        colour = task.prompt.split()[2]
        assert [row["Position"] for row in json.loads(str(task.answer))] == task.fields["boxes"]
        for left, top, right, bottom in task.fields["boxes"]:
            inside = pixels[top:bottom, left:right]
            assert (inside == COLOURS[colour]).all(-1).any() and 0 <= left < right <= 24 and 0 <= top < bottom <= 24
        for a, b in combinations(task.fields["boxes"], 2):
            assert a[0] > b[2] or b[0] > a[2] or a[1] > b[3] or b[1] > a[3], "shapes do not touch"


def test_without_jitter_and_mistakes_demonstrations_are_right() -> None:
    for task in Shapes(size=40, jitter=0, mistakes=0.0).load():
        assert [row["Position"] for row in stated(task)] == task.fields["boxes"]
        assert all(row["Confidence"] in (0.1, 0.3, 0.5, 0.7, 0.9) for row in stated(task))


def test_mistakes_are_as_frequent_as_they_are_stated_to_be() -> None:
    tasks = Shapes(size=400, jitter=0, mistakes=0.5).load()
    other = [len(stated(task)) != len(task.fields["boxes"]) for task in tasks]
    assert abs(np.mean(other) - 0.5) < 0.1


def test_labels_are_named_and_some_demonstrations_say_nothing() -> None:
    tasks = Shapes(size=300, question="label", mistakes=0.4).load()
    assert all(task.answer in {f"{c} {f}" for c in COLOURS for f in FORMS} for task in tasks)
    said = [re.sub(".*<answer>|</answer>", "", task.demonstrations[0]) for task in tasks]
    right = np.mean([text == task.answer for text, task in zip(said, tasks, strict=True)])
    empty = np.mean([text == "" for text in said])
    assert 0.5 < right < 0.75 and 0.1 < empty < 0.3


def test_the_same_question_about_another_picture_is_another_problem() -> None:
    tasks = Shapes(size=200).load()
    assert len({task.prompt for task in tasks}) == 12
    assert len({problem(task) for task in tasks}) == len({task.key for task in tasks}) == 200
    train, held_out = holdout(tasks, 50, seed=0)
    assert len(held_out) == 50 and exclude(train, held_out)[1] == 0


@pytest.mark.parametrize("question", ["yes_no", "choice", "names"])
def test_questions_about_all_shapes_are_answered_by_the_pixels(question: Literal["yes_no", "choice", "names"]) -> None:
    tasks = Shapes(question=question, size=60, shapes=(1, 3), mistakes=0.0).load()
    for task in tasks:
        [image] = task.images
        colours = {name for name, colour in COLOURS.items() if (pixels_of(image) == colour).all(-1).any()}
        assert isinstance(task.prompt, str) and task.answer is not None and task.fields["form"] == question
        assert task.demonstrations[0].endswith(f"<answer>{task.answer}</answer>")
        if question == "names":
            names = task.answer.split(", ")
            assert names == sorted(set(names)) and {name.split()[0] for name in names} == colours
        elif question == "choice":
            right = [dict(zip(LETTERS, task.fields["options"], strict=True))[letter] for letter in task.answer]
            assert (
                right and {name.split()[0] for name in right} <= colours and task.answer == "".join(sorted(task.answer))
            )
            assert len(set(task.fields["options"])) == 4
        elif task.answer == "yes":
            assert task.prompt.split()[3] in colours
    if question == "yes_no":
        assert 0.3 < np.mean([task.answer == "yes" for task in tasks]) < 0.7
    mistaken = Shapes(question=question, size=60, shapes=(1, 3), mistakes=1.0).load()
    same = [a.demonstrations == b.demonstrations for a, b in zip(tasks, mistaken, strict=True)]
    assert np.mean(same) < 0.2, "a drawn mistake may be right by chance"


@pytest.mark.parametrize("question", ["boxes", "names", "choice", "yes_no", "label"])
def test_only_the_given_forms_are_drawn_and_named(
    question: Literal["boxes", "names", "choice", "yes_no", "label"],
) -> None:
    tasks = Shapes(question=question, size=40, forms=("square",)).load()
    texts = [" ".join((task.prompt, task.answer or "")) for task in tasks if isinstance(task.prompt, str)]
    assert len(texts) == 40 and not any("circle" in text or "triangle" in text for text in texts)
