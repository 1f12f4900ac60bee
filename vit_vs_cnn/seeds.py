"""Seeds derived from names, so that each random number of a run depends only on its place in the run."""

import hashlib


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed from a path of names and numbers, such as ``derive_seed(cell_seed, "augment", step)``.

    The draws of one step never depend on how many draws another step made. So a run that is stopped and resumed, or
    spread over other devices, makes the same draws; no generator's state has to be saved.
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
