"""posttrain and other programs, in turns: the same models, prompts, rewards and settings; see `__main__`."""
