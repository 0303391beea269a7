"""Fixed: the settings of the recipe in every step; nothing is measured."""

from posttrain.component import frozen
from posttrain.components.controllers import Controller


@frozen
class Fixed(Controller):
    """Plain DP-SGD."""

    @property
    def reads(self) -> bool:
        """False."""
        return False
