"""Several policies that learn together."""
