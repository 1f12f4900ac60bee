"""Seeds from names, and counter-based random numbers, equal on every machine and library version."""

import hashlib

import numpy as np
from jaxtyping import Int64, Shaped, UInt64

_GAMMA = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, made odd
_MASK = (1 << 64) - 1


def mix64(values: UInt64[np.ndarray, "*shape"]) -> UInt64[np.ndarray, "*shape"]:
    """The SplitMix64 finaliser: a bijection of 64-bit words where every input bit affects every output bit.

    Reference: Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, with the constants of
    Stafford's "Mix13" as in Vigna's public-domain ``splitmix64.c``. All products are modulo 2^64.
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def counter_key(seed: int, *path: int) -> UInt64[np.ndarray, "1"]:
    """A key for the stream of random numbers that ``seed`` and the whole numbers of ``path`` name, ``(1,)``."""
    key = np.zeros(1, dtype=np.uint64)
    for part in (seed, *path):
        key = mix64(key + np.uint64(_GAMMA) + mix64(np.array([part & _MASK], dtype=np.uint64)))
    return key


def split_keys(
    keys: UInt64[np.ndarray, "*batch"], counters: Shaped[np.ndarray, "count"]
) -> UInt64[np.ndarray, "*batch count"]:
    """Output number ``counters`` (from 0) of the SplitMix64 generator of each key: random words, or further keys.

    value_j = mix64(key + (j + 1) gamma)
    """
    return mix64(keys[..., None] + (counters.astype(np.uint64) + np.uint64(1)) * np.uint64(_GAMMA))


def to_integers(
    words: UInt64[np.ndarray, "*shape"], low: int | Int64[np.ndarray, "..."], high: int | Int64[np.ndarray, "..."]
) -> Int64[np.ndarray, "..."]:
    """Random integers from ``low`` to ``high``, both included, with a bias below ``(high - low + 1) / 2^32``."""
    return low + (((words >> np.uint64(32)).astype(np.int64) * (high - low + 1)) >> 32)


def permutation(key: UInt64[np.ndarray, "1"], count: int) -> Int64[np.ndarray, "{count}"]:
    """The numbers 0 to ``count - 1`` in the order of the random words that the key gives them."""
    return np.argsort(split_keys(key, np.arange(count))[0], kind="stable").astype(np.int64)


def balanced_labels(
    key: UInt64[np.ndarray, "1"], numbers: Int64[np.ndarray, "count"], classes: int
) -> Int64[np.ndarray, "count"]:
    """The class of each of ``numbers`` (ascending, without gaps): all classes once, in a fresh random order, for every
    ``classes`` numbers."""
    blocks = np.arange(numbers[0] // classes, numbers[-1] // classes + 1)
    orders = np.argsort(split_keys(split_keys(key, blocks)[0], np.arange(classes)), axis=1, kind="stable")
    return orders.reshape(-1)[numbers - blocks[0] * classes].astype(np.int64)


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed from a path of names and numbers, such as ``derive_seed(cell_seed, "augment", step)``.

    No step depends on the random numbers of another one, so a resumed run needs no state of a generator.
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
