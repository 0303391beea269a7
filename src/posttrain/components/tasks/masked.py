r"""Paragraphs with masked entities as tasks: fill all masks, and give the paragraph back as it was.

    Fill the masks: balo lives in [mask], works as baker, is a friend of [mask] of ulm.\n

Each task of the source is a paragraph, with the fields ``entities``, a list of texts, and ``title``. What is masked:
`posttrain.datasets.masking`. The answer is the whole paragraph; the field ``masks`` has the number of masks, and the
domain is ``masks 2``. Tasks are in the order of that number, for the curriculum ``in_order``.

Source: Retrieval Augmented Mask Prediction of MaskSearch, arXiv:2505.20285. The order by masks is that of its
curriculum; when it goes on is not known, here after the tasks of a number have been taken once.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.datasets.masking import masked
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class Masked(Tasks):
    """Masks entities of other tasks."""

    tasks: Tasks
    """The source of the paragraphs."""
    copies: Annotated[int, Field(ge=1, le=100)] = 1
    """Maskings of each paragraph; equal ones are one task."""
    seed: NonNegativeInt = 0
    """Which entities are masked."""
    ordered: bool = True
    """Whether tasks with fewer masks come first."""

    def load(self) -> Sequence[Task]:
        """The tasks. Raises `UserError` for a source without entities or without a paragraph that can be masked."""
        made = [task for source in self.tasks.load() for task in self._maskings(source)]
        if not made:
            raise UserError(
                "no paragraph has an entity that can be masked: one that stands in it once, and is not its title; "
                "see the columns 'entities' and 'title'"
            )
        return keyed(sorted(made, key=lambda task: task.fields["masks"]) if self.ordered else made)

    def describe(self) -> str:
        """The source, and an example."""
        return describe(f"{self.tasks.kind} with masked entities", self.load())

    def _maskings(self, source: Task) -> list[Task]:
        entities, title = source.fields.get("entities"), source.fields.get("title", "")
        text = source.prompt if isinstance(source.prompt, str) else source.prompt[-1]["content"]
        if not isinstance(entities, Sequence) or isinstance(entities, str):
            raise UserError(
                f"task {source.key} has no list of entities; give its row a column 'entities', such as "
                '["Kesh", "1907"], and a column \'title\''
            )
        names, found = [str(entity) for entity in entities], dict[str, Task]()
        for copy in range(self.copies):
            made = masked(str(title), text, names, Random(f"masked:{self.seed}:{source.key}:{copy}"))
            if made is not None:
                found[made.text] = Task(
                    key="",
                    prompt=f"Fill the masks: {made.text}\n",
                    answer=made.whole,
                    domain=f"masks {made.masks}",
                    fields={**source.fields, "masks": made.masks},
                )
        return list(found.values())
