"""posttrain: post-training of generative models by reinforcement and imitation.

Every published method is a recipe, and every recipe is a short difference from another one.
"""

__version__ = "0.1.0"
