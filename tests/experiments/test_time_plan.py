import io
import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from lightning.fabric import Fabric
from rich.console import Console

from tests.experiments.tiny import plan_runs, tiny_config
from tests.refused import refused
from tests.results import make_result
from vit_vs_cnn.config.experiment import Budget, Executor, Experiment, experiment_from_dict
from vit_vs_cnn.data.batches import TrainingBatches
from vit_vs_cnn.experiments.analysis_plan import make_analysis_plan, register_plan
from vit_vs_cnn.experiments.time_plan import (
    GridPlan,
    GridTimeModel,
    candidate_grids,
    choose_grid,
    plan_for_time,
    seconds_per_step,
    spread_sizes,
)
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.runs.experiment_folder import write_config, write_experiment


@pytest.fixture(scope="module")
def pool() -> ExperimentData:
    return ExperimentData(experiment_from_dict(_values(Path("runs"))).data)


def _values(output: Path, **changes) -> dict:
    values = tiny_config(output, minutes=3.0, budget={"steps": 100}, batch_size=14)
    values["data"]["synthetic"] = {"train_images": 1300, "test_images": 60, "image_size": 8}
    values["models"]["vit"]["options"] |= {"patch_size": 2, "embed_dim": 12}  # matched to the ResNet
    return values | {"executor": "local"} | changes


def _experiment(output: Path, **changes) -> Experiment:
    return experiment_from_dict(_values(output, **changes))


@pytest.mark.parametrize(("count", "smallest"), [(1, 1300), (2, 280), (3, 100), (5, 100)])
def test_sizes_are_evenly_spread_and_end_with_all_images(pool, count, smallest):
    sizes = spread_sizes(pool, count)
    assert len(sizes) == count and sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (smallest, 1300)
    ratios = [b / a for a, b in itertools.pairwise(sizes)]
    assert max(ratios, default=1.0) < 1.1 * min(ratios, default=1.0)
    assert max(ratios, default=1.0) < 1.02 * 100 ** (1 / 3)  # four sizes in two decades


@pytest.fixture(autouse=True)
def one_core(monkeypatch):
    """Features are computed one batch at a time, whatever machine this is."""
    monkeypatch.setattr("vit_vs_cnn.experiments.time_plan.count_parallel_batches", lambda threads: 1)


def _plan_output(
    monkeypatch, experiment: Experiment, pool: ExperimentData, *, step: float = 0.01, **options
) -> tuple[Experiment, str]:
    """The experiment as planned for the given minutes, and the printed text."""
    monkeypatch.setattr("vit_vs_cnn.experiments.time_plan.seconds_per_step", lambda *_: step)
    text = io.StringIO()
    return plan_for_time(experiment, console=Console(file=text, width=400), pool=pool, **options), text.getvalue()


@pytest.mark.parametrize(
    ("minutes", "answers"),
    [
        (0.22, r"no conclusion \(it needs --minutes 1\) and no trend over the number of images \(.* --minutes 2\)"),
        (0.8, r"a conclusion and no trend over the number of images \(it needs --minutes 2\)"),
        (9.0, "a conclusion and a trend over the number of images$"),
    ],
)
def test_the_plan_names_the_answers_that_it_allows(pool, monkeypatch, tmp_path, minutes, answers):
    experiment, text = _plan_output(monkeypatch, _experiment(tmp_path, minutes=minutes), pool)
    assert re.search(f"These runs allow {answers}", text.rstrip())
    assert (len(experiment.protocol.seeds) >= 3) == ("no conclusion" not in answers)
    assert (len(experiment.protocol.train_sizes) >= 4) == ("no trend" not in answers)


def test_a_plan_keeps_several_budgets(pool, monkeypatch, tmp_path):
    several = _experiment(tmp_path, minutes=20.0)
    several = replace(several, protocol=replace(several.protocol, budget=Budget(steps=[50, 100])))
    planned, _ = _plan_output(monkeypatch, several, pool)
    shorter, longer = planned.protocol.budget.amounts
    assert longer == 2 * shorter


def test_with_too_few_test_images_no_answer_is_promised(monkeypatch, tmp_path):
    experiment = _experiment(tmp_path, minutes=9.0)
    few = replace(experiment.data, synthetic=replace(experiment.data.synthetic, test_images=5))
    _, text = _plan_output(monkeypatch, replace(experiment, data=few), ExperimentData(few))
    assert "Too few images for an answer: 5 test images cannot show any difference" in " ".join(text.split())
    assert "These runs allow" not in text


def test_three_seeds_may_overrun_the_minutes_by_less_than_a_quarter(pool, monkeypatch, tmp_path):
    grids = candidate_grids(GridTimeModel(_experiment(Path("runs")), pool, {"vit": 0.01, "resnet": 0.01}))
    cheapest = min((grid for grid in grids if grid.allows_conclusion), key=lambda grid: grid.seconds)
    assert choose_grid(grids, cheapest.seconds / 60 / 1.24) == cheapest
    assert not choose_grid(grids, cheapest.seconds / 60 / 1.26).allows_conclusion
    plan, text = _plan_output(monkeypatch, _experiment(tmp_path, minutes=round(cheapest.seconds / 60 / 1.2, 3)), pool)
    assert len(plan.protocol.seeds) == 3
    assert f"3 seeds take about {cheapest.seconds:.0f} s, more than " in text


@pytest.mark.parametrize(
    ("cores", "workers", "seeds", "at_a_time"), [(4, 2, 8, 2), (4, 4, 8, 4), (2, 4, 8, 2), (4, 4, 1, 2), (1, 4, 8, 1)]
)
def test_parallel_runs_shorten_the_plan(pool, monkeypatch, cores, workers, seeds, at_a_time):
    """Two models; no more runs are parallel than there are runs, workers and cores."""
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    experiment, plan = _experiment(Path("runs")), GridPlan((1300,), tuple(range(seeds)), (100,))
    experiments = experiment, replace(experiment, executor=Executor(name="processes", workers=workers))
    alone, parallel = (GridTimeModel(one, pool, dict.fromkeys(one.models, 1.0)).of(plan).seconds for one in experiments)
    assert parallel - 12 == pytest.approx(alone / at_a_time)  # 12 seconds until the processes have read the images


@pytest.mark.parametrize(
    ("change", "is_larger"),
    [
        *[({"runs": 9}, False), ({"train_sizes": (50, 100, 200)}, True), ({"train_sizes": (100, 150, 180)}, False)],
        *[({"seeds": (0, 1, 2, 3)}, True), ({"seeds": (0, 1, 3, 4)}, False), ({"steps": (60,)}, True)],
        *[({"train_sizes": (200,), "steps": (60,)}, False), ({"steps": (40,), "seeds": (0, 1, 2, 3)}, False)],
    ],
)
def test_a_larger_plan_has_all_seeds_and_no_fewer_sizes_images_or_steps(change, is_larger):
    plan = GridPlan((100, 200), (0, 1, 2), (50,))
    assert replace(plan, **change).is_larger_than(plan) == is_larger


def test_the_cheapest_plan_with_a_conclusion_may_overrun_the_minutes():
    plans = (((0, 1, 2), 70.0), ((0, 1, 2, 3), 72.0), ((0,), 50.0))
    small, medium, one_seed = (GridPlan((100, 200), seeds, (10,), seconds=time) for seeds, time in plans)
    assert choose_grid([medium, small, one_seed], 1.0) == small


def test_settings_given_by_the_user_are_kept(pool):
    experiment = _experiment(Path("runs"), minutes=100.0)
    experiment = replace(experiment, protocol=replace(experiment.protocol, seeds=[5, 7], train_sizes=[60, "all"]))
    fixed = ["protocol.seeds", "protocol.train_sizes", "protocol.budget.steps"]
    grid = choose_grid(candidate_grids(GridTimeModel(experiment, pool, {"vit": 0.01, "resnet": 0.01}), fixed), 100.0)
    assert (grid.seeds, grid.train_sizes, grid.steps) == ((5, 7), (60, 1300), (100,))


def test_a_step_of_every_model_is_timed_with_its_backward_pass(tmp_path, monkeypatch):
    losses, backward = [], Fabric.backward
    monkeypatch.setattr(Fabric, "backward", lambda fabric, loss: (losses.append(loss), backward(fabric, loss)))
    experiment = experiment_from_dict(_values(tmp_path))
    images = ExperimentData(experiment.data)
    for name in experiment.models:
        assert 0 < seconds_per_step(experiment, name, images) < math.inf
        assert len(losses) > 1
        losses.clear()


@pytest.mark.parametrize(
    ("recipe", "fixed", "what"),
    [("by_size", "protocol.budget.steps", "train_sizes"), ("by_budget", "protocol.train_sizes", "budget")],
)
def test_recipes_by_size_or_budget_are_refused_if_minutes_choose_these(tmp_path, recipe, fixed, what):
    values = tiny_config(tmp_path, minutes=1.0, train_sizes=[60], budget={"steps": [2, 4]})
    values["models"]["vit"][recipe] = {60 if recipe == "by_size" else 4: {"label_smoothing": 0.2}}
    with refused(f"models.vit.{recipe}: minutes chooses protocol.{what}"):
        plan_for_time(experiment_from_dict(values), fixed=[fixed], console=Console(quiet=True))


@pytest.mark.parametrize("minutes", [3.0, 1.0])
def test_the_same_or_fewer_minutes_keep_the_grid_of_the_folder(tmp_path, minutes):
    started = _experiment(tmp_path)
    write_config(started)
    text = io.StringIO()
    assert plan_for_time(_experiment(tmp_path, minutes=minutes), console=Console(file=text, width=200)) == started
    assert "Continuing with the earlier plan: 120 images, 1 seed, 100 steps each" in text.getvalue()


def _started(tmp_path: Path, pool: ExperimentData, *, sizes: list, seeds: list[int]) -> Experiment:
    """An experiment whose runs are finished."""
    experiment = _experiment(tmp_path)
    experiment = replace(experiment, protocol=replace(experiment.protocol, train_sizes=sizes, seeds=seeds))
    runs = plan_runs(experiment)
    register_plan(make_analysis_plan(experiment, {size: pool.resolve(size) for size in sizes}), experiment.folder)
    write_experiment(experiment, runs)
    for run in runs:
        run.folder.mkdir(parents=True, exist_ok=True)
        run.write_result(make_result())
    return experiment


def test_more_minutes_plan_a_larger_grid_in_which_finished_runs_count(pool, monkeypatch, tmp_path):
    started = _started(tmp_path, pool, sizes=["all"], seeds=[0])
    more, text = _plan_output(monkeypatch, replace(started, minutes=3.7), pool)
    protocol = more.protocol
    assert more.minutes == 3.7
    assert protocol.seeds == [0, 1, 2, 3, 4]
    assert (len(protocol.train_sizes), protocol.train_sizes[-1]) == (5, 1300)
    assert protocol.budget.amounts == [100]
    assert f"{2 * 5 * 5} runs in about" in text
    assert sum(run.is_finished for run in plan_runs(replace(started, protocol=protocol))) == 2


def test_after_a_first_analysis_sizes_and_seeds_are_added_and_no_longer_budget(pool, monkeypatch, tmp_path):
    started = _started(tmp_path, pool, sizes=[100, 1300], seeds=[0, 1, 2])
    more, _ = _plan_output(monkeypatch, replace(started, minutes=500.0), pool)
    assert more.protocol.budget == started.protocol.budget
    assert (more.protocol.seeds, len(more.protocol.train_sizes)) == ([0, 1, 2, 3, 4], 5)


def test_a_folder_of_other_images_is_refused(tmp_path):
    started = _experiment(tmp_path)
    write_config(replace(started, data=replace(started.data, source="folder", root="elsewhere")))
    with refused("other images (the folder elsewhere, not synthetic images); give this one"):
        plan_for_time(started, console=Console(quiet=True))


def _recommended(output: Path, minutes: float, **changes) -> Experiment:
    """Models by name alone."""
    models = {"vit": {"name": "vit_nano", "options": {"patch_size": 2}}, "resnet": {"name": "resnet8"}}
    return _experiment(output, minutes=minutes, models=models, **changes)


@pytest.mark.parametrize(("minutes", "trials"), [(200.0, 8), (30.0, 6), (0.8, None)])
def test_a_fifth_of_the_minutes_is_spent_on_equal_searches_for_recipes(pool, monkeypatch, tmp_path, minutes, trials):
    experiment, text = _plan_output(monkeypatch, _recommended(tmp_path, minutes), pool)
    assert experiment.tuning.trials == trials
    assert (f"First a search for recipes with {trials} trials of each model" in text) is bool(trials)
    if trials is not None:
        costs = GridTimeModel(experiment, pool, {"vit": 0.01, "resnet": 0.01})
        without = replace(costs, experiment=replace(experiment, tuning=replace(experiment.tuning, trials=None)))
        protocol = experiment.protocol
        sizes, steps = sorted(pool.resolve(size) for size in protocol.train_sizes), protocol.budget.amounts
        chosen = GridPlan(tuple(sizes), tuple(protocol.seeds), tuple(steps))
        assert costs.of(chosen).seconds <= 60 * minutes
        assert costs.of(chosen).seconds - without.of(chosen).seconds <= 0.2 * 60 * minutes


@pytest.mark.parametrize("named", ["tuning.trials", "models.vit.optimizer.lr"])
def test_recipes_that_the_user_named_are_not_searched_for(pool, monkeypatch, tmp_path, named):
    values = _recommended(tmp_path, 200.0).to_dict()
    if named.startswith("models"):
        values["models"]["vit"]["optimizer"]["lr"] = 0.0123
    experiment, text = _plan_output(monkeypatch, experiment_from_dict(values), pool, fixed=[named])
    assert experiment.tuning.trials is None
    assert "search for recipes" not in text


def test_an_interrupted_search_is_resumed_with_its_grid(pool, monkeypatch, tmp_path):
    first, _ = _plan_output(monkeypatch, _recommended(tmp_path, 30.0), pool)
    write_config(first)
    again, text = _plan_output(monkeypatch, _recommended(tmp_path, 30.0), pool, step=0.02)
    assert (again.protocol, again.tuning) == (first.protocol, first.tuning)
    assert "Continuing with the earlier plan" in text


def _with_probes(output: Path, **changes) -> dict:
    values = _values(output, **changes)
    probe = {"name": "timm/test_vit", "weights": {"hub": True, "optional": True}, "finetune": "head"}
    values["models"] |= {"vit_pretrained": probe, "cnn_pretrained": probe | {"name": "timm/test_convnext"}}
    values["protocol"]["pairs"] = [["vit_pretrained", "cnn_pretrained"], ["vit", "resnet"], ["vit_pretrained", "vit"]]
    return values


@pytest.mark.parametrize(("minutes", "is_tuned"), [(9.0, False), (900.0, True)])
def test_linear_probes_are_fine_tuned_too_where_the_minutes_allow(pool, monkeypatch, tmp_path, minutes, is_tuned):
    """The fine-tuned pair becomes the primary comparison, and the same command keeps it."""
    values = _with_probes(tmp_path, minutes=minutes)
    experiment, text = _plan_output(monkeypatch, experiment_from_dict(values), pool, step=0.5)
    tuned = {"vit_finetuned", "cnn_finetuned"}
    assert ("Left out: fine-tuning of pretrained models. To include this: --minutes" in text) != is_tuned
    assert tuned & experiment.models.keys() == (tuned if is_tuned else set())
    assert (experiment.protocol.pairs[0] == ["vit_finetuned", "cnn_finetuned"]) == is_tuned
    assert experiment.models["vit_pretrained"].finetune.head
    write_config(experiment)
    again, _ = _plan_output(monkeypatch, experiment_from_dict(values), pool)
    assert again == experiment


def test_features_of_probes_are_paid_once_for_all_runs(pool, tmp_path):
    costs = GridTimeModel(experiment_from_dict(_with_probes(tmp_path)), pool, {"vit_pretrained": 4.2})
    plans = (GridPlan((1300,), (0,), (100,)), GridPlan((60, 1300), (0, 1, 2), (100,)))
    few, many = (costs.of(plan).seconds for plan in plans)
    assert few == pytest.approx(1.15 * ((1300 + 60) * 4.2 / (3 * 14) + 2))
    assert many - few == pytest.approx(1.15 * 5 * 2)


def test_in_few_minutes_the_probes_alone_are_planned_until_more_minutes_are_given(pool, monkeypatch, tmp_path):
    first, text = _plan_output(monkeypatch, experiment_from_dict(_with_probes(tmp_path)), pool, step=1.3)
    assert [*first.models] == ["vit_pretrained", "cnn_pretrained"]
    assert first.protocol.pairs == [["vit_pretrained", "cnn_pretrained"]]
    assert len(first.protocol.seeds) >= 3
    assert re.search(r"Left out: models from scratch. To include this: --minutes \d+", text)
    write_config(first)
    again, text = _plan_output(monkeypatch, experiment_from_dict(_with_probes(tmp_path)), pool, step=1.3)
    assert (again, "Continuing with the earlier plan" in text) == (first, True)
    more, _ = _plan_output(monkeypatch, experiment_from_dict(_with_probes(tmp_path, minutes=4.0)), pool, step=1.3)
    assert more.models == first.models
    more, _ = _plan_output(monkeypatch, experiment_from_dict(_with_probes(tmp_path, minutes=9e3)), pool, step=1.3)
    assert more.models.keys() == {"vit", "resnet", "vit_pretrained", "cnn_pretrained", "vit_finetuned", "cnn_finetuned"}
    assert (more.protocol.train_sizes, more.protocol.seeds) >= (first.protocol.train_sizes, first.protocol.seeds)


def test_without_a_pair_of_probes_models_from_scratch_are_not_left_out(pool, monkeypatch, tmp_path):
    values = _with_probes(tmp_path)
    values |= {"minutes": 9e3, "protocol": values["protocol"] | {"pairs": [["vit", "resnet"]]}}
    first, _ = _plan_output(monkeypatch, experiment_from_dict(values), pool)
    write_config(first)
    again, _ = _plan_output(monkeypatch, experiment_from_dict(values), pool)
    assert again.models.keys() == first.models.keys()


def test_the_plan_of_models_from_scratch_alone_needs_the_minutes(pool, monkeypatch, tmp_path):
    needed = "use --minutes", "for a conclusion (3 seeds). Smaller images"
    with refused("minutes 0.1: the smallest plan (1,300 images, 1 seed, 25 steps each) takes about", *needed):
        _plan_output(monkeypatch, _experiment(tmp_path, minutes=0.1), pool, step=1.3)


def test_a_probe_is_timed_with_few_images(tmp_path, monkeypatch):
    sizes, batch = [], TrainingBatches.batch

    def recorded_batch(batches, position):
        images, targets = batch(batches, position)
        sizes.append(len(images))
        return images, targets

    monkeypatch.setattr(TrainingBatches, "batch", recorded_batch)
    values = _values(tmp_path)
    values["models"]["probe"] = values["models"]["resnet"] | {"starts_from": "resnet", "finetune": "head"}
    experiment = experiment_from_dict(values)
    assert seconds_per_step(experiment, "probe", ExperimentData(experiment.data)) > 0
    assert {*sizes} == {4}
