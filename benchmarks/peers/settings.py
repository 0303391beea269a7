"""What all sides agree on. Standard library only: it is imported in both environments."""

BETAS = (0.9, 0.95)
CLIP_NORM = 1.0
CLIP = 0.2
STEPS = 1000
"""More than there are turns."""
EPSILON = 1e-4
"""Added to the std of a group's rewards."""
