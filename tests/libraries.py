"""Libraries that tests need and that not every machine can install."""

import importlib
import shutil
import sysconfig
from pathlib import Path

import pytest


def needs_reasoning_gym() -> None:
    """Fail where reasoning-gym is missing; skip only where `setup/install` leaves it out, without a C compiler."""
    if not (shutil.which("cc") and Path(sysconfig.get_path("include"), "Python.h").exists()):
        pytest.importorskip("reasoning_gym", reason="reasoning-gym needs a C compiler to be installed")
    importlib.import_module("reasoning_gym")
