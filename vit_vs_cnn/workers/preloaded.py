"""What the server imports before workers are forked from it; for that module alone to be named."""

import atexit
import gc

gc.disable()  # nothing that is imported is garbage, and looking for it takes a fifth of the time

import vit_vs_cnn.workers.work  # noqa: E402, F401

gc.freeze()  # so that no collection in a worker copies the pages of what all of them share
atexit.register(gc.unfreeze)  # libraries that look for leaks at the end find none
gc.enable()
