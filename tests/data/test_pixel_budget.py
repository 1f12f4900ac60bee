"""Threads never hold more pixels together than the budget, whatever their number."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from vit_vs_cnn.data import decoding, image_cache
from vit_vs_cnn.data.decoding import PixelBudget
from vit_vs_cnn.data.options import FolderOptions


class Held:
    """What is held now, and the most that has been held at a time, by several holders and by one."""

    def __init__(self):
        self.lock, self.now, self.most, self.holders = threading.Lock(), [], 0, 0

    def add(self, pixels):
        with self.lock:
            self.now.append(pixels)
            self.holders = max(self.holders, len(self.now))
            self.most = max(self.most, sum(self.now) if len(self.now) > 1 else 0)

    def remove(self, pixels):
        with self.lock:
            self.now.remove(pixels)


def test_holders_together_stay_within_the_limit_and_a_large_one_goes_alone():
    budget, held = PixelBudget(11), Held()

    def hold(pixels):
        with budget.holding(pixels):
            held.add(pixels)
            time.sleep(0.002)
            held.remove(pixels)

    with ThreadPoolExecutor(7) as pool:
        list(pool.map(hold, [3, 5, 2, 17, 1, 7, 23, 3, 2] * 5))
    assert 5 < held.most <= 11 and held.holders > 1


def test_what_is_held_is_given_back_when_decoding_fails():
    budget = PixelBudget(5)
    for _ in range(3):
        with pytest.raises(KeyError), budget.holding(5):
            raise KeyError
    with budget.holding(5):
        pass


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_the_images_of_a_folder_are_decoded_within_the_budget(tmp_path, monkeypatch, suffix):
    side, count = 331, 23
    pixels = np.random.default_rng(0).integers(256, size=(side, side, 3), dtype=np.uint8)
    for number in range(count):
        options = {"progressive": True} if suffix == "jpg" else {}
        Image.fromarray(pixels).save(tmp_path / f"{number}.{suffix}", **options)
    held, upright, on_white = Held(), decoding._upright, decoding._composite_on_white

    def recorded(image):
        held.add(side * side)
        time.sleep(0.002)
        return upright(image)

    def released(image):
        held.remove(side * side)
        return on_white(image)

    monkeypatch.setattr(decoding, "_upright", recorded)
    monkeypatch.setattr(decoding, "_composite_on_white", released)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(image_cache, "MAX_DECODED_PIXELS", 3 * side * side)
    names = [f"{number}.{suffix}" for number in range(count)]
    listing = image_cache.ImageListing("table", ("ant",), names, ["train"] * count, [0] * count)
    pixels = np.empty((count, 3, 7, 7), np.uint8)
    readable = image_cache._decode_files(tmp_path, listing, FolderOptions(image_size=7), pixels)
    assert readable.names == names and not readable.problems
    assert held.holders == 3
