"""Tables of the scores of maps."""

import pandas
import pytest

from vit_vs_cnn.reporting.inspection_page import randomization_table


@pytest.mark.parametrize(
    ("method", "largest", "is_marked"),
    [("rollout", 0.51, True), ("rollout", 0.49, False), ("random", 0.51, False), ("rollout", float("nan"), False)],
)
def test_maps_that_stay_similar_with_shuffled_weights_are_marked(method, largest, is_marked):
    row = {"method": method, "images": 7, "class_specific": True}
    row |= {"sanity_head": 0.2, "sanity_head_sd": 0.1, "sanity_head_max": largest}
    ((_, cell),) = randomization_table("vit", pandas.DataFrame([row])).rows
    assert cell == "0.20 ± 0.10" + " !" * is_marked
