"""Credit assignment over turns and tokens."""
