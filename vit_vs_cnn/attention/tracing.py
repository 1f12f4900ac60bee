"""What a network has to do otherwise while it is written down as a program: keep no tensors, count no images."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

Given = ParamSpec("Given")
Made = TypeVar("Made")


def is_tracing() -> bool:
    """Whether the calls are recorded for ``torch.export``, ONNX or ``torch.jit.trace``: the batch may then be any."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]


class _Unkept(Exception):
    def __init__(self, made: object) -> None:
        super().__init__()
        self.made = made


def kept(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """``lru_cache`` for a function that makes tensors, which keeps none of a tracer's.

    Those stand for values that nobody computes: whoever were to read them later would fail.
    """

    @lru_cache(maxsize=64)
    def plain(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        with torch.inference_mode(False), torch.no_grad():  # it outlives this call, and may be read under autograd
            made = function(*args, **kwargs)
        if not _is_plain(made):
            raise _Unkept(made)  # an exception is not kept
        return made

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        try:
            return plain(*args, **kwargs)
        except _Unkept as unkept:
            return unkept.made  # pyright: ignore[reportReturnType]

    return call


def _is_plain(made: object) -> bool:
    """Whether all tensors in it are of torch's own class: those of tracers are of subclasses."""
    if isinstance(made, Tensor):
        return type(made) is Tensor
    return all(map(_is_plain, made)) if isinstance(made, list | tuple) else True
