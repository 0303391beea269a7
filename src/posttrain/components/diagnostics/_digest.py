"""A digest of a model's weights, by which a diagnostic shows that it has not changed them."""

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posttrain.policies import Policy


def digest_of(policy: "Policy") -> str:
    """SHA-256 of names and values of all weights, in hexadecimal digits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(policy.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).float().numpy().tobytes())
    return digest.hexdigest()
