"""Optional packages, imported only where they are used."""

import importlib
from typing import Any

from posttrain.errors import UserError


def extra(module: str, name: str) -> Any:
    """Import a module that comes with an optional extra; `UserError` with the command that installs a missing one."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UserError(
            f"this needs the package '{module}', which is not installed: pip install 'posttrain[{name}]'"
        ) from None
