"""What all tests share."""

import os
import tempfile

from hypothesis import settings

# Continuous integration tries the same examples every time, so that its verdict is about the change; a run by hand
# looks for new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("by hand", deadline=None)
settings.load_profile("ci" if "CI" in os.environ else "by hand")

# Consent to run code is remembered in the user's home; tests keep it to themselves.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="posttrain-tests-state-")
