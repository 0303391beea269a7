"""How attempts are sampled and which are kept."""
