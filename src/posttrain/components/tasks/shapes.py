"""Generated pictures of coloured shapes, with questions for boxes, a label, yes or no, options, or all names.

Boxes have the format of Visual-RFT (arXiv:2503.01785): ``<think>1 red square</think><answer>[{"Position": [3, 4, 12,
13], "Confidence": 0.7}]</answer>``, left, top, right and bottom in pixels. Demonstrations are imperfect on purpose, so
that a reward can improve on imitation: corners have random offsets, confidences are random, and some demonstrations
have a mistake: an additional or a missing box, another label, or an empty answer.

The questions of Curr-ReFT (arXiv:2503.07065) are about all shapes of a picture, which have different names:

    yes_no   Is there a red square?             yes
    choice   Which? A red square B blue circle  B      four options, of which one or several are right
    names    What is there?                     blue circle, red square

Their mistakes are the other word, or drawn letters or names. The field ``form`` is the question.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from random import Random
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered, distinct
from posttrain.datasets.images import Pixels, write_png
from posttrain.datasets.keys import digest, keyed
from posttrain.types import IMAGE, Image, Task

COLOURS = {"red": (220, 40, 40), "green": (40, 190, 60), "blue": (50, 80, 230), "yellow": (230, 210, 50)}
Form = Literal["square", "circle", "triangle"]
FORMS: tuple[Form, ...] = ("square", "circle", "triangle")
BACKGROUND = (128, 128, 128)
CONFIDENCES = ("0.1", "0.3", "0.5", "0.7", "0.9")
PLACEMENTS = 20
"""Random places that are tried for a shape before it is left out."""

QUESTIONS = {
    "boxes": "where shapes are",
    "label": "what a shape is",
    "yes_no": "whether there is one",
    "choice": "which there are",
    "names": "what there is",
}
LETTERS = "ABCD"

Count = Annotated[int, Field(ge=1, le=6)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Drawn(NamedTuple):
    """A shape in a picture, and the box around it."""

    colour: str
    form: str
    box: tuple[int, int, int, int]

    @property
    def name(self) -> str:
        """Colour and form."""
        return f"{self.colour} {self.form}"


class Scene(NamedTuple):
    """The shapes of a picture, and the name or the options in the question."""

    shapes: tuple[Drawn, ...]
    target: str
    options: tuple[str, ...] = ()


@frozen
class Shapes(Tasks):
    """Distinct pictures without overlapping shapes; a larger `size` begins with the same ones."""

    size: PositiveInt = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    question: Literal["boxes", "label", "yes_no", "choice", "names"] = "boxes"
    """``boxes``: the box of every shape of a name; ``label``: the name of the only shape; see above for the others."""
    side: Annotated[int, Field(ge=12, le=256)] = 24
    """Pixels on each side of a picture; shapes take a quarter to a half of it."""
    forms: Annotated[tuple[Form, ...], Field(min_length=1)] = FORMS
    """Forms that are drawn; four options need at least two of them."""
    shapes: Annotated[tuple[Count, Count], Ordered] = (1, 3)
    """Fewest and most shapes in a picture, but for labels; a picture without room for more may have fewer."""
    jitter: NonNegativeInt = 2
    """Largest offset of each corner of a demonstrated box, in pixels."""
    mistakes: Share = 0.3
    """Share of the demonstrations that have a mistake."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return self._loaded

    def describe(self) -> str:
        """Question, number and an example."""
        return describe(
            f"shapes ({QUESTIONS[self.question]}, {self.side} pixels a side; seed {self.seed})", self.load()
        )

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        scenes = distinct(self._draw, self.size, f"shapes:{self.question}:{self.seed}")
        return keyed(self._task(scene, index) for index, scene in enumerate(scenes))

    def _draw(self, rng: Random) -> Scene:
        if self.question in ("yes_no", "choice", "names"):
            return self._of_all(rng)
        count = rng.randint(*self.shapes) if self.question == "boxes" else 1
        drawn: list[Drawn] = []
        target = f"{rng.choice(list(COLOURS))} {rng.choice(self.forms)}"
        for number in range(count):
            again = number == 0 or rng.random() < 0.4  # the one in the question, and sometimes more of its name
            name = target if again else f"{rng.choice(list(COLOURS))} {rng.choice(self.forms)}"
            box = self._place(rng, drawn)
            if box is not None:
                colour, form = name.split()
                drawn.append(Drawn(colour, form, box))
        return Scene(tuple(sorted(drawn, key=lambda shape: shape.box)), target)

    def _of_all(self, rng: Random) -> Scene:
        """A picture of different shapes, and a question about all of them."""
        drawn: list[Drawn] = []
        names = [f"{colour} {form}" for colour in COLOURS for form in self.forms]
        rng.shuffle(names)
        for name in names[: rng.randint(*self.shapes)]:
            box = self._place(rng, drawn)
            if box is not None:
                colour, form = name.split()
                drawn.append(Drawn(colour, form, box))
        there = [shape.name for shape in drawn]
        absent = [name for name in names if name not in there]
        shapes = tuple(sorted(drawn, key=lambda shape: shape.box))
        if self.question == "yes_no":
            return Scene(shapes, rng.choice(there if rng.random() < 0.5 else absent))
        right = rng.randint(1, len(there)) if self.question == "choice" else 0
        if right:
            right = max(right, len(LETTERS) - len(absent))  # where there are few names, all that are there
        options = [*rng.sample(there, right), *rng.sample(absent, len(LETTERS) - right)] if right else []
        rng.shuffle(options)
        return Scene(shapes, "", tuple(options))

    def _place(self, rng: Random, others: Sequence[Drawn]) -> tuple[int, int, int, int] | None:
        """A box that touches no other one; None if none was found."""
        for _ in range(PLACEMENTS):
            width, height = (rng.randint(self.side // 4, self.side // 2) for _ in range(2))
            left, top = rng.randint(0, self.side - width), rng.randint(0, self.side - height)
            box = left, top, left + width, top + height
            if all(not _touch(box, other.box) for other in others):
                return box
        return None

    def _task(self, scene: Scene, index: int) -> Task:
        boxes = [list(shape.box) for shape in scene.shapes if shape.name == scene.target]
        rng = Random(f"shapes demonstration:{self.seed}:{index}")
        picture = Image(data=write_png(painted(scene.shapes, self.side)), name=f"shapes-{digest(scene)}")
        if self.question in ("yes_no", "choice", "names"):
            return self._asked(scene, picture, rng)
        if self.question == "label":
            return Task(
                key="",
                prompt=f"What is it?{IMAGE}\n",
                answer=scene.target,
                domain=scene.target,
                demonstrations=(self._named(scene.target, rng),),
                images=(picture,),
            )
        return Task(
            key="",
            prompt=f"Find every {scene.target}.{IMAGE}\n",
            answer=json.dumps([{"Position": box} for box in boxes]),
            domain=f"{len(boxes)} of {len(scene.shapes)}",
            demonstrations=(self._found(boxes, scene.target, rng),),
            fields={"boxes": boxes},
            images=(picture,),
        )

    def _asked(self, scene: Scene, picture: Image, rng: Random) -> Task:
        """A question about all shapes of a picture."""
        there = {shape.name for shape in scene.shapes}
        if self.question == "yes_no":
            prompt, answer = f"Is there a {scene.target}?", "yes" if scene.target in there else "no"
            other = "no" if answer == "yes" else "yes"
        elif self.question == "choice":
            prompt = "Which?" + "".join(f" {a} {name}" for a, name in zip(LETTERS, scene.options, strict=True))
            answer = "".join(a for a, name in zip(LETTERS, scene.options, strict=True) if name in there)
            other = "".join(sorted(rng.sample(LETTERS, rng.randint(1, 2))))
        else:
            prompt, answer = "What is there?", ", ".join(sorted(there))
            some = (f"{rng.choice(list(COLOURS))} {rng.choice(self.forms)}" for _ in there)
            other = ", ".join(sorted(set(some)))
        stated = other if rng.random() < self.mistakes else answer
        return Task(
            key="",
            prompt=f"{prompt}{IMAGE}\n",
            answer=answer,
            domain=self.question,
            demonstrations=(f"<think>{QUESTIONS[self.question]}</think><answer>{stated}</answer>",),
            fields={"form": self.question, **({"options": list(scene.options)} if scene.options else {})},
            images=(picture,),
        )

    def _named(self, label: str, rng: Random) -> str:
        """A demonstration with the label, or with a mistake."""
        if rng.random() < self.mistakes:
            label = rng.choice(["", f"{rng.choice(list(COLOURS))} {rng.choice(self.forms)}"])
        return f"<think>one shape</think><answer>{label}</answer>"

    def _found(self, boxes: Sequence[Sequence[int]], name: str, rng: Random) -> str:
        """A demonstration of the boxes with jitter, and possibly a mistake."""
        stated = [self._jittered(box, rng) for box in boxes]
        if rng.random() < self.mistakes:
            if len(stated) > 1 and rng.random() < 0.5:
                stated.pop(rng.randrange(len(stated)))
            else:
                junk = self._place(rng, ())
                stated += [junk] if junk else []
        rows = [{"Position": list(box), "Confidence": float(rng.choice(CONFIDENCES))} for box in stated]
        return f"<think>{len(stated)} {name}</think><answer>{json.dumps(rows)}</answer>"

    def _jittered(self, box: Sequence[int], rng: Random) -> tuple[int, ...]:
        moved = [min(max(x + rng.randint(-self.jitter, self.jitter), 0), self.side) for x in box]
        return moved[0], moved[1], max(moved[2], moved[0] + 1), max(moved[3], moved[1] + 1)


def painted(shapes: Sequence[Drawn], side: int) -> Pixels:
    """[side, side, 3] pixels of the picture, by integer arithmetic, so that they are equal on all machines."""
    pixels = np.empty((side, side, 3), np.uint8)
    pixels[:] = BACKGROUND
    for shape in shapes:
        left, top, right, bottom = shape.box
        pixels[top:bottom, left:right][_filled(shape.form, bottom - top, right - left)] = COLOURS[shape.colour]
    return pixels


def _filled(form: str, height: int, width: int) -> NDArray[np.bool_]:
    """[height, width] mask of the pixels of its box that a shape covers. Every shape touches all four sides."""
    row, column = np.ogrid[:height, :width]
    x, y = 2 * column + 1 - width, 2 * row + 1 - height  # twice the distance from the middle of the box
    if form == "circle":
        return np.asarray((x * height) ** 2 + (y * width) ** 2 <= (width * height) ** 2)
    if form == "triangle":
        return np.asarray(np.abs(x) * height <= width * (row + 1) - 1 + height)
    return np.ones((height, width), bool)


def _touch(a: Sequence[int], b: Sequence[int]) -> bool:
    return a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]
