"""What is asked of a machine before Ray is started on it."""

import importlib.util
import os
from pathlib import Path

from posttrain.errors import UserError


def check_processes(kind: str, device: str, address: str, cpus: float, settings: str) -> None:
    """Raise `UserError` without Ray, on a GPU, without a token for a Ray that is there, and for more CPUs than this
    machine can give; `settings` request that many.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError(f"cluster={kind} needs Ray, which is not installed: pip install 'posttrain[ray]'")
    if device != "cpu":
        raise UserError(
            f"cluster={kind} has processes on CPUs only, and this run is on {device}: samplers and learners are given "
            "no GPU. Set device=cpu, or leave the cluster out"
        )
    if address:
        _check_token(address)
        return
    cores = len(os.sched_getaffinity(0))
    most = max(cores, 4) * 2
    if cpus > most:
        raise UserError(
            f"{settings} ask for {cpus:g} CPUs beside this process, and this machine has "
            f"{cores} (twice as many, at least 8, may be asked for); ask for fewer, or join a Ray of several "
            "machines with cluster.address=HOST:PORT"
        )


def _check_token(address: str) -> None:
    """Raise `UserError` where there is no token for a Ray that is there, or others can read it."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if not path.is_file():
        raise UserError(
            f"there is no token for the Ray at {address}: {path} is not there. Who reaches the ports of a "
            "Ray without a token runs any code as its user. Start it with RAY_AUTH_MODE=token, and give its token "
            "as RAY_AUTH_TOKEN_PATH=FILE"
        )
    if path.stat().st_mode & 0o077:
        raise UserError(f"{path} can be read by others, who could then run any code as you: chmod 600 {path}")
