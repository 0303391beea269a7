"""Sampling again in a step until enough groups pass the filters: dynamic sampling.

Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, section 3.2: more prompts are sampled until the batch is full of groups
that are neither all right nor all wrong. Their code samples another whole batch each time, at most ten in all
(``max_num_gen_batches``), and drops what is over.

Carrying what is over to the front of the next step (`surplus`): Recent Sample Recovery of Confucius3-Math,
arXiv:2506.18330, section 5. A group is carried once: the next step trains on it or drops it. It was sampled by the
policy of the step before; its ratios are taken to the policy at the start of the step that trains on it, without an
importance weight for the difference, which the authors tried and found to change nothing.

Copies in place of sampling (``when_spent=copies``): DUPO of WebSailor, arXiv:2507.02592, section 4: slots of groups
that the filters dropped are filled by random copies of the others, without new rollouts. Where no group is left there
is nothing to copy.

Differs: when the rounds are spent, DAPO's code stops; the default here trains on what there is, which the metric
``refills`` and the rows of the record show. Filters see all groups of the step at once, in each round.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.filters import Dropped
from posttrain.components.rollouts import Earlier
from posttrain.components.timetables import Timetable
from posttrain.errors import AlarmStop, UserError
from posttrain.stages.rl.replay import Replay
from posttrain.types import Group

_COPIES = 0x4355
"""Separates the draw of copies from others of the same seed."""


@frozen
class Refill:
    """How a step is filled up when filters have dropped groups."""

    rounds: Annotated[int, Field(ge=0, le=100)] = 9
    """Most further rounds of sampling in a step, each with as many tasks as the first; 0 is none."""
    prompts: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Groups that make a step full; None takes the stage's `prompts`. With fewer, a step samples more tasks at first
    than it trains on. What is over is dropped."""
    when_spent: Literal["fewer", "stop", "copies"] = "fewer"
    """What happens when the step is not full after the last round: it trains on fewer groups, the run stops, or random
    copies of the groups that are left fill it up."""
    surplus: Literal["drop", "carry"] = "drop"
    """What happens to groups that are over: they are dropped, or they come first in the next step."""

    replay: Replay | None = None
    """Groups of earlier steps in place of some of the first round; None has none."""

    def epochs(self, step: int) -> int | None:
        """Epochs over the batch of a step, counted from 0; None for those of the learner."""
        return self.replay.epochs(step) if self.replay is not None else None

    def carries(self, group: Group) -> bool:
        """Whether a group that is over waits for the next step: one of this step, which has not waited before."""
        return self.surplus == "carry" and all(t.fact(Earlier) is None for t in group)

    def copied(self, kept: Sequence[Group], prompts: int, key: Sequence[int]) -> list[Group]:
        """Copies that fill the step up, each of a group drawn by the key; none where groups are not copied."""
        missing = (self.prompts or prompts) - len(kept)
        if self.when_spent != "copies" or not kept or missing <= 0:
            return []
        drawn = np.random.default_rng([*key, _COPIES]).integers(len(kept), size=missing)
        return [kept[place] for place in drawn.tolist()]

    def cut(self, kept: Sequence[Group], dropped: Sequence[Dropped], prompts: int) -> tuple[list[Group], list[Dropped]]:
        """The groups that a full step trains on, and those that are over. Raises `AlarmStop` for too few."""
        if not self.rounds and self.prompts is None:
            return list(kept), []
        wanted = self.prompts or prompts
        if len(kept) < wanted and self.when_spent == "stop":
            reasons = Counter(item.reason for item in dropped).most_common(3)
            listed = "; ".join(f"{reason}: {number}" for reason, number in reasons)
            raise AlarmStop(
                f"after {self.rounds} refills only {len(kept)} of {wanted} groups are left. Dropped were, by reason: "
                f"{listed}. Allow more refill.rounds, train on fewer groups with refill.when_spent=fewer, or change "
                "what the filters let pass"
            )
        over = [
            Dropped(group=group, reason=f"the step is full{'; the next one has it' if self.carries(group) else ''}")
            for group in kept[wanted:]
        ]
        return list(kept[:wanted]), over

    def is_full(self, kept: Sequence[Group], prompts: int) -> bool:
        """Whether no further round is needed."""
        return len(kept) >= (self.prompts or prompts)


def check_streams(timetable: Timetable, refill: Refill | None) -> None:
    """Raise `UserError` for streaming with a refill."""
    if timetable.streams is not None and refill is not None:
        raise UserError(
            f"schedule={timetable.kind} fills batches as groups end, and refill those of a step; set refill=null, "
            "and schedule.filtered=group to sample until enough groups pass the filters"
        )
