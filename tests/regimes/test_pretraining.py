"""What pretraining is worth in images, and which contenders are compared."""

from dataclasses import replace

import pytest

from tests.results import changed, make_result
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes import analyse, answer, headline
from vit_vs_cnn.regimes.convergence import FITTED
from vit_vs_cnn.regimes.findings import recorded_analysis
from vit_vs_cnn.reporting.tables import results_csv
from vit_vs_cnn.runs.design import Design

SIZES, SEEDS = (100, 700, 2300), (0, 1, 2)
CURVES = {
    "vit": (0.20, 0.35, 0.50),
    "resnet": (0.25, 0.45, 0.60),
    "vit_tuned": (0.42, 0.55, 0.66),
    "resnet_tuned": (0.44, 0.58, 0.64),
}
PAIRS = (("vit_tuned", "resnet_tuned"), ("vit", "resnet"), ("vit", "vit_tuned"), ("resnet", "resnet_tuned"))


def _results(curves=CURVES):
    """Runs whose seeds are a tenth of a point apart."""
    return [
        make_result(
            contender=name,
            train_size=size,
            seed=seed,
            accuracy=accuracy + seed / 1000,
            scored_images=10_000,
            start_kind="fine-tuned" if "tuned" in name else "from scratch",
            start_name="in1k" if "tuned" in name else None,
            architecture=name.partition("_")[0],
        )
        for name, accuracies in curves.items()
        for size, accuracy in zip(SIZES, accuracies, strict=True)
        for seed in SEEDS
    ]


def _design(pairs=PAIRS):
    return Design(SEEDS, False, tuple(CURVES), SIZES, SIZES[-1], ("vit_tuned", "resnet_tuned"), 1.0, pairs=pairs)


def test_what_pretraining_is_worth_is_bracketed_by_the_sizes_that_were_run():
    worth = {(one.pretrained, one.size): one for one in analyse(_results(), resamples=50).worth}
    assert len(worth) == 6
    one = worth["vit_tuned", 100]  # 42 %, between 35 % with 700 and 50 % with 2,300
    assert (one.scratch, one.more_than, one.at_most) == ("vit", 700, 2300)
    assert one.text == "more than 700, fewer than 2,300"
    assert (worth["vit_tuned", 700].more_than, worth["vit_tuned", 700].at_most) == (2300, None)
    assert one.differences[700].value == pytest.approx(0.07)


def test_the_worth_at_one_size_has_the_interval_of_the_comparison():
    design = replace(_design(), seeds=tuple(range(10)), on_the_way=True)
    analysis = analyse(_results(), design=design, resamples=50)
    pair = analysis.pair("vit", "vit_tuned")
    assert pair is not None
    worth = {one.size: one.differences[one.size] for one in analysis.worth if one.scratch == "vit"}
    assert worth == {
        one.size: one.difference if one.first == "vit_tuned" else -one.difference for one in pair.comparisons
    }


def test_what_is_not_told_apart_is_no_bracket():
    curves = {"vit": (0.2, 0.35, 0.5), "vit_tuned": (0.2, 0.35, 0.5)}
    (first, *_) = analyse(_results(curves), resamples=50).worth
    assert (first.more_than, first.at_most) == (None, 700)


def test_without_pretrained_contenders_nothing_is_said_of_pretraining():
    plain = {name: CURVES[name] for name in ("vit", "resnet")}
    found = analyse(_results(plain), resamples=50)
    assert found.worth == ()
    assert "pretrain" not in answer(found)
    unknown = [changed(r, start_kind="unknown", start_name=None) for r in _results()]
    assert "scratch" not in answer(analyse(unknown, resamples=50))


def test_the_answer_compares_models_and_says_what_pretraining_changed():
    found = analyse(_results(), design=_design(), resamples=50)
    pair = headline(found)
    assert {pair.ahead, pair.behind} == {"vit_tuned", "resnet_tuned"}
    said = answer(found)
    assert "With 100 images the vit_tuned does better than the ViT, from scratch, with 700." in said
    assert "from scratch: the ResNet is ahead; fine-tuned: the vit_tuned is ahead" in said


def test_only_the_pairs_of_the_protocol_are_compared():
    named = analyse(_results(), design=_design(), resamples=50)
    everyone = analyse(_results(), design=_design(None), resamples=50)
    assert len(named.pairs) == 4
    assert len(everyone.pairs) == 6
    assert {c.family for pair in named.pairs for c in pair.comparisons} == {12}
    assert {c.family for pair in everyone.pairs for c in pair.comparisons} == {18}


def test_a_table_of_the_runs_gives_the_same_analysis(tmp_path):
    (tmp_path / "results.csv").write_text(results_csv(_results()))
    assert recorded_analysis(tmp_path / "results.csv", resamples=50) == analyse(_results(), resamples=50)


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ({"pairs": [["vit", "nobody"]]}, "protocol.pairs: 'nobody' is none of vit, resnet"),
        ({"pairs": [["vit", "vit"]]}, "pairs must each name two contenders"),
        ({"pairs": []}, "pairs must each name two contenders"),
        ({"pairs": [["vit", "other"]], "primary": {"contenders": ["vit", "resnet"]}}, "none of protocol.pairs"),
    ],
)
def test_pairs_that_cannot_be_are_refused_in_one_line(protocol, said):
    contenders = {"vit": {"model": {"name": "vit_nano"}}, "resnet": {"model": {"name": "resnet8"}}}
    if "other" in str(protocol):
        contenders["other"] = contenders["resnet"]
    values = {"name": "x", "protocol": {"budget": {"steps": 1}, **protocol}, "contenders": contenders}
    with pytest.raises(InputError, match=said):
        experiment_from_dict(values)


def test_pairs_that_all_lose_a_contender_do_not_become_all_pairs():
    models = {"vit": "vit_nano", "resnet": "resnet8", "wide": "resnet8"}
    contenders = {name: {"model": {"name": model}} for name, model in models.items()} | {"vit": None}
    protocol = {"budget": {"steps": 1}, "pairs": [["vit", "resnet"], ["vit", "wide"]]}
    with pytest.raises(InputError, match=r"protocol\.pairs: none is left without vit; name others, or null for all"):
        experiment_from_dict({"name": "x", "protocol": protocol, "contenders": contenders})


def test_a_contender_that_is_left_out_takes_its_pairs_with_it():
    contenders = {"vit": {"model": {"name": "vit_nano"}}, "resnet": {"model": {"name": "resnet8"}}, "other": None}
    protocol = {"budget": {"steps": 1}, "pairs": [["vit", "resnet"], ["vit", "other"]]}
    read = experiment_from_dict({"name": "x", "protocol": protocol, "contenders": contenders})
    assert read.protocol.pairs == [["vit", "resnet"]]


def test_a_linear_probe_is_no_run_that_a_longer_budget_would_change():
    probes = [changed(r, finetune="head", start_kind="linear probe") for r in _results() if "tuned" in r.contender]
    found = analyse(probes, resamples=50)
    assert {(one.state, one.reason) for one in found.convergence} == {("settled", FITTED)}
    assert "twice the" not in answer(found)
