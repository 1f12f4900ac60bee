"""State of the whole process: kept by calls from Python, changed by the processes that a command starts."""

import contextlib
import ctypes
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

#: What glibc's ``mallopt`` calls its thresholds, and the largest one for separate blocks: 32 MiB.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD = -1, -3, 2**25
#: Loggers whose level is changed for the time of a training.
_LOGGERS = ("lightning.pytorch", "lightning.fabric")


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the tensors of the next step; with other C libraries nothing happens.

    By default, each step waits for thousands of pages that the system fills with zeros. The results are the same.
    """
    with contextlib.suppress(OSError, TypeError, AttributeError):  # another C library, or none
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def quiet_lightning() -> None:
    """Silence Lightning's remarks, which are about choices that are made here on purpose."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")


@contextlib.contextmanager
def preserve_process_state() -> Iterator[None]:
    """Restore global state after a block or a decorated function, also after an exception.

    Restored are the random generators of Python, NumPy and PyTorch, the warnings filters, the levels of Lightning's
    loggers, the environment, and PyTorch's number of threads and switches for deterministic algorithms. If the block
    is the first to import NumPy or PyTorch, the library gets a new random seed.
    """
    with contextlib.ExitStack() as after:
        after.enter_context(warnings.catch_warnings())
        after.callback(_restore_environment, dict(os.environ))
        after.callback(random.setstate, random.getstate())
        for name in _LOGGERS:
            after.callback(logging.getLogger(name).setLevel, logging.getLogger(name).level)
        if "numpy" in sys.modules:
            import numpy as np

            after.callback(np.random.set_state, np.random.get_state())
        if "torch" in sys.modules:
            import torch

            devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
            after.enter_context(torch.random.fork_rng(devices))
            after.enter_context(limit_threads(torch.get_num_threads()))
            after.callback(torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode())
            for name in ("benchmark", "deterministic"):
                after.callback(setattr, torch.backends.cudnn, name, getattr(torch.backends.cudnn, name))
        after.callback(_reset_imported, {"numpy", "torch"} - sys.modules.keys())
        yield


def _restore_environment(before: dict[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _reset_imported(libraries: set[str]) -> None:
    """Give libraries that a call has imported a fresh random seed, and PyTorch its default switches."""
    if "numpy" in libraries & sys.modules.keys():
        import numpy as np

        np.random.seed()
    if "torch" in libraries & sys.modules.keys():
        import torch

        torch.seed()
        torch.set_deterministic_debug_mode(0)
        cudnn: Any = torch.backends.cudnn
        cudnn.benchmark = cudnn.deterministic = False


@contextlib.contextmanager
def handle_signal(number: int, handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle a signal by a function within the block. Other threads than the main one get no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)


@contextlib.contextmanager
def record_interrupt(interrupted: threading.Event) -> Iterator[None]:
    """Set an event if Ctrl-C arrives within the block, and raise KeyboardInterrupt as usual.

    The event is needed because libraries may replace KeyboardInterrupt by another error, such as ImportError during an
    import. Where Ctrl-C is ignored, as in a background job of a script, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.default_int_handler(number, frame)

    with handle_signal(signal.SIGINT, handle):
        yield


class TimeLimitReached(BaseException):
    """A block took longer than its ``time_limit``. No ``except Exception`` of a library stops it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitReached in a block after this time, in the thread that runs it.

    The limit holds in the main thread only, and not on Windows, which lacks this signal.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeLimitReached

    with handle_signal(signal.SIGALRM, stop):
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # once more each second, if a destructor swallows the first
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)


@contextlib.contextmanager
def limit_threads(count: int) -> Iterator[None]:
    """Use this number of threads of PyTorch and of NumPy's matrix products within the block.

    By default, each process multiplies matrices on all cores. Small matrices then take ten times as long (measured).
    """
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
