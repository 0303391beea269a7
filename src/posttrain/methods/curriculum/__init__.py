"""Which tasks are trained on."""
