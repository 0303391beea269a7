"""What tests of the compiled kernels share."""

import pytest

from posttrain.kernels import _build

FOUND = _build.built()
needs_kernels = pytest.mark.skipif(  # never for kernels that do not compile: that must fail
    FOUND.library is None and "does not compile" not in FOUND.why_not, reason=f"no kernels here: {FOUND.why_not}"
)
