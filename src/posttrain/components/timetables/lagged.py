"""Sample some steps ahead: step s with the weights of step s - 1 - k, while the learner works on the steps before.

Source: AsyncFlow (arXiv 2507.01663), whose updates reach the samplers one step late; LlamaRL (arXiv 2505.24034), with
a lag of one or more steps. Tasks of step s are chosen by what the curriculum had observed after step s - 1 - k.

Differs: the lag is a number of steps, and not whatever the machines had time for; on one process it is the same run,
without overlap. Samplers of a cluster begin a step when the one before it has been sampled whole.
"""

from pydantic import NonNegativeInt

from posttrain.component import frozen
from posttrain.components.timetables import Timetable


@frozen
class Lagged(Timetable):
    """A fixed lag."""

    steps: NonNegativeInt = 1
    """k: steps that sampling is ahead; 0 for none. Rollouts of that many steps are kept, and are in checkpoints."""

    @property
    def ahead(self) -> int:
        """The setting `steps`."""
        return self.steps
