"""Sample some steps ahead: step s with the weights of step s - 1 - k, while the learner works on the steps before.

Source: AsyncFlow (arXiv 2507.01663), whose updates reach the samplers one step late; LlamaRL (arXiv 2505.24034), with
a lag of one or more steps. Tasks of step s are chosen by what the curriculum had observed after step s - 1 - k.

With ``cluster=ray`` up to k + 1 steps are sampled at a time, each with its weights, of which samplers have copies:
while the long rollouts of a step go on, the next one begins. What is sampled and learned is the same without that.

Differs: the lag is a number of steps, and not whatever the machines had time for; on one process it is the same run,
without overlap. A checkpoint waits for all steps that are being sampled. Where rollouts go on in the next step (rollout
``partial``), or a reward keeps something from step to step, a step begins when the one before has been sampled whole.
"""

from pydantic import NonNegativeInt

from posttrain.component import frozen
from posttrain.components.timetables import Timetable


@frozen
class Lagged(Timetable):
    """A fixed lag."""

    steps: NonNegativeInt = 1
    """k: steps that sampling is ahead; 0 for none. Rollouts of that many steps are kept, and are in checkpoints."""

    overlapped: bool = True
    """Whether samplers of a cluster begin a step while the long rollouts of the one before go on; they have up to k + 1
    copies of the weights then, and one more for evaluation. It changes no number."""

    @property
    def ahead(self) -> int:
        """The setting `steps`."""
        return self.steps

    @property
    def overlaps(self) -> bool:
        """The setting `overlapped`."""
        return self.overlapped
