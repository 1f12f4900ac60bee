"""The training loop follows its equations."""

import copy
import math

import jaxtyping
import lightning
import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from vit_vs_cnn.data.augmentation.augmenter import Augmentation
from vit_vs_cnn.data.batches import TrainingBatches, TrainingData
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError, TrainingDiverged
from vit_vs_cnn.models import create_model
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.training import callbacks
from vit_vs_cnn.training.classifier import Classifier, MovingAverage, Teacher
from vit_vs_cnn.training.optimization import Optimizer, Schedule

STEPS = 7
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")


def training_data(**changes) -> TrainingData:
    images = torch.randint(0, 256, (17, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    data = LabelledImages(images, torch.arange(17) % 3, ("a", "b", "c"), [str(i) for i in range(17)])
    settings = {"augmentation": Augmentation(), "batch_size": 5, "steps": STEPS, "seed": 1} | changes
    return TrainingData(data, None, **settings)


def _network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 11), nn.GELU(), nn.Linear(11, 3))


def _classifier(**changes) -> Classifier:
    optimizer = Optimizer(name="momentum", lr=0.1, weight_decay=0.0, momentum=0.0)
    settings = {"num_classes": 3, "optimizer": optimizer, "schedule": Schedule(warmup=0.3), "steps": STEPS}
    return Classifier(_network(), **(settings | changes))


def _trainer(**settings) -> lightning.Trainer:
    silent = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return lightning.Trainer(**{"accelerator": "cpu"} | silent | settings)


def fit(module: Classifier, data: TrainingData, **settings) -> Classifier:
    _trainer(max_steps=STEPS, max_epochs=1, use_distributed_sampler=False, **settings).fit(module, data)
    return module


@pytest.mark.parametrize("augmentation", [Augmentation(), Augmentation(mixup=1.0)], ids=["hard", "soft"])
def test_training_equals_a_manual_loop(augmentation):
    data = training_data(augmentation=augmentation)
    module = fit(_classifier(label_smoothing=0.1), data)
    network, schedule = _network(), Schedule(warmup=0.3)
    for step, (images, targets) in enumerate(data.train_dataloader()):
        loss = F.cross_entropy(network(images), targets, label_smoothing=0.1)
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                parameter.sub_(0.1 * schedule.factor(step, STEPS) * gradient)
    torch.testing.assert_close([*module.network.parameters()], [*network.parameters()], rtol=1e-5, atol=1e-6)


def test_the_weight_average_follows_its_equation():
    received, module = [], _classifier(ema_half_life=0.5)
    watch = LambdaCallback(on_train_batch_end=lambda *_: received.append(copy.deepcopy(module.network.state_dict())))
    fit(module, training_data(), callbacks=[watch])
    decay = 0.5 ** (1 / (0.5 * STEPS))
    average = received[0]
    for state in received[1:]:
        average = {name: decay * average[name] + (1 - decay) * state[name] for name in average}
    assert module.evaluated_network is not module.network
    torch.testing.assert_close(dict(module.evaluated_network.state_dict()), average, rtol=1e-5, atol=1e-6)


def test_accumulated_batches_make_the_step_of_one_large_batch():
    whole = fit(_classifier(), training_data(augmentation=Augmentation(crop_padding=0, flip=False), batch_size=10))
    halves = training_data(augmentation=Augmentation(crop_padding=0, flip=False), batch_size=10, accumulate=2)
    parts = fit(_classifier(), halves, accumulate_grad_batches=2)
    torch.testing.assert_close([*whole.network.parameters()], [*parts.network.parameters()], rtol=1e-5, atol=1e-6)


def test_a_nan_loss_stops_the_run_with_step_and_cause():
    module = _classifier(optimizer=Optimizer(name="sgd", lr=1e30, weight_decay=0.0), schedule=Schedule(warmup=0.0))
    with pytest.raises(TrainingDiverged, match=r"not a number at step \d of 7: likely the learning rate there is"):
        fit(module, training_data())
    network = _network()
    nn.init.constant_(network[1].weight, math.nan)
    with pytest.raises(TrainingDiverged, match="at step 0 of 7, before any update: the network computes logits"):
        fit(Classifier(network, num_classes=3, steps=STEPS), training_data())


def test_every_parameter_is_in_one_group_and_norms_biases_and_positions_do_not_decay():
    network = create_model("vit_nano", num_classes=7, image_size=(12, 20), pool="class")
    groups = Optimizer(weight_decay=0.3).build(network).param_groups
    decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    assert sorted(id(p) for group in groups for p in group["params"]) == sorted(id(p) for p in network.parameters())
    for name, parameter in network.named_parameters():
        is_map = name.endswith("weight") and parameter.ndim > 1
        assert (id(parameter) in decayed) == is_map, name


@pytest.mark.parametrize("steps", [2, 37])
@pytest.mark.parametrize("warmup", [0.0, 0.25, 1.0])
def test_learning_rates_follow_the_documented_formula(warmup, steps):
    rise = min(round(warmup * steps), steps - 1)  # the last step of a warm-up of the whole run is at the peak
    schedule = Schedule(warmup=warmup, final=0.1)
    for step in range(steps):
        fall = (1 + math.cos(math.pi * ((step - rise) / (steps - rise)))) / 2
        expected = (step + 1) / (rise + 1) if step < rise else 0.1 + (1 - 0.1) * fall
        assert schedule.factor(step, steps) == pytest.approx(expected, rel=1e-15)
    assert schedule.factor(rise, steps) == 1.0


def test_a_plain_lightning_trainer_trains_tests_saves_and_loads_the_classifier(tmp_path):
    data = training_data()
    data.validation = data.training
    module = Classifier(_network(), num_classes=3, optimizer=Optimizer(lr=0.01), ema_half_life=0.5, label_smoothing=0.3)
    trainer = _trainer(max_steps=STEPS, default_root_dir=tmp_path, enable_checkpointing=True)
    trainer.validate(module, data)  # in inference mode, whose tensors training cannot change
    trainer.fit(module, data)
    assert trainer.global_step == STEPS
    [validated], [tested] = trainer.validate(module, data), trainer.test(module, data.val_dataloader())
    probabilities = torch.cat(trainer.predict(module, data.val_dataloader()))
    labels = data.training.labels
    accuracy = (probabilities.argmax(1) == labels).double().mean().item()
    assert validated["val/accuracy"] == tested["test/accuracy"] == pytest.approx(accuracy)
    loss = F.nll_loss(probabilities.log(), labels).item()
    assert validated["val/loss"] == tested["test/loss"] == pytest.approx(loss, rel=1e-5)
    path = next(tmp_path.rglob("*.ckpt"))
    with pytest.raises(InputError, match=r"with Classifier.load_from_checkpoint\(path, network=...\)"):
        TrainedNetwork.open(path)
    again = Classifier.load_from_checkpoint(path, network=_network(), weights_only=True)
    assert again.ema_half_life == 0.5
    images = data.augmenter.normalize(data.training.images)
    torch.testing.assert_close(again.eval()(images).softmax(1), probabilities, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("asked", "batches"),
    [({"max_steps": 9}, 9), ({"max_epochs": 3}, 6), ({"max_steps": 2, "accumulate_grad_batches": 2}, 4)],
)
def test_more_steps_than_planned_continue_the_stream_of_batches(asked, batches):
    received, network, trainer = [], _network(), _trainer(**asked)
    network.register_forward_pre_hook(lambda _, inputs: received.append(inputs[0]))
    trainer.fit(Classifier(network, num_classes=3), training_data(steps=2))
    assert trainer.global_step == trainer.estimated_stepping_batches
    stream = TrainingBatches(training_data(steps=batches))
    assert len(received) == batches
    assert all(torch.equal(one, other) for one, (other, _) in zip(received, stream, strict=True))


def test_mismatched_images_and_labels_are_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # no type checks, as for input of a user
    given = {"images": torch.zeros(5, 3, 8, 8, dtype=torch.uint8), "labels": torch.arange(5) % 3}
    for changes, message in (
        ({"images": torch.zeros(5, 3, 8, 8)}, "images: .* of torch.float32; expected .* of torch.uint8"),
        ({"images": torch.zeros(5, 8, 8, dtype=torch.uint8)}, r"images: \(5, 8, 8\) of torch.uint8; expected"),
        ({"labels": torch.arange(5) % 3 + 0.5}, "labels: .* expected .* of torch.int64"),
        ({"labels": torch.arange(5)}, "labels: from 0 to 4, but there are 3 classes"),
        ({"labels": torch.arange(4) % 3}, "labels: 4 for 5 images; each image needs one"),
        ({"sample_ids": ["a"]}, "sample_ids: 1 for 5 images"),
    ):
        with pytest.raises(InputError, match=message):
            LabelledImages(**(given | {"class_names": ("a", "b", "c")} | changes))


@pytest.mark.parametrize("images", [5, 17])
def test_a_network_with_another_number_of_classes_is_refused_at_its_first_logits(images):
    data = training_data()
    data.validation = None if images == 5 else data.training.subset(range(images))
    with pytest.raises(InputError, match=rf"the network returns logits of shape \({images}, 3\), but num_classes is 7"):
        fit(Classifier(_network(), num_classes=7, steps=STEPS), data)


def test_a_run_without_a_number_of_steps_and_an_average_in_half_precision_are_refused():
    with pytest.raises(InputError, match="set steps of Classifier, or max_steps of the Trainer"):
        _trainer(max_epochs=-1).fit(Classifier(_network(), num_classes=3), training_data())
    module = _classifier(ema_half_life=0.5).bfloat16()  # whose eight bits lose small updates of the average
    with pytest.raises(InputError, match=r"ema_half_life: .* set trainer.precision to bf16-mixed"):
        module.on_fit_start()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_weighted_classes_is_that_of_torch_for_shares_of_classes_too(smoothing):
    """torch divides by the sum of class weights for class indices, and by the batch size for class shares."""
    weights, logits, labels = [0.2, 0.7, 3.0], torch.randn(7, 3), torch.tensor([0, 1, 2, 0, 0, 1, 2])
    module = _classifier(class_weights=weights, label_smoothing=smoothing)
    expected = F.cross_entropy(logits, labels, weight=torch.tensor(weights), label_smoothing=smoothing)
    for targets in (labels, F.one_hot(labels, 3).float()):
        torch.testing.assert_close(module._loss(logits, targets), expected)

    logits.requires_grad_()
    module = _classifier(class_weights=[0.0, 1.0, 1.0], label_smoothing=smoothing)
    loss = module._loss(logits, torch.zeros(7, dtype=torch.int64))  # of the class with weight 0
    loss.backward()
    assert loss == 0.0 and not logits.grad.any()


@pytest.mark.parametrize("mixed", [False, True])
def test_the_loss_with_a_teacher_is_that_of_its_formula(mixed):
    """The last 2 of 7 images have no label. The teacher was trained on images with another normalization."""
    torch.manual_seed(4)
    weight, temperature, scale, shift = 0.3, 2.5, torch.full((3, 1, 1), 0.5), torch.randn(3, 1, 1)
    student, teacher = (nn.Sequential(nn.Flatten(), nn.Linear(12, 3)) for _ in range(2))
    images, labels = torch.randn(7, 3, 2, 2), torch.arange(5) % 3
    targets = torch.rand(5, 3).softmax(1) if mixed else labels
    module = Classifier(student, num_classes=3, teacher=Teacher(teacher, weight, temperature, scale, shift))
    loss = module.compute_loss((images, targets))
    gradients = torch.autograd.grad(loss, [*student.parameters()])
    soft = targets if mixed else F.one_hot(labels, 3)
    logits, own = teacher(images * 0.5 + shift), student(images)
    p, q = (torch.exp(x / temperature) / torch.exp(x / temperature).sum(1, keepdim=True) for x in (logits, own))
    labelled = -(soft * torch.log(torch.exp(own) / torch.exp(own).sum(1, keepdim=True))[:5]).sum(1).mean()
    divergence = (p.detach() * torch.log(p.detach() / q)).sum(1).mean()
    expected = (1 - weight) * labelled + weight * temperature**2 * divergence
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, [*student.parameters()]))
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert not any("teacher" in name for name in module.state_dict())


def test_batches_with_unlabelled_images_have_a_label_for_the_first_half_and_resume():
    more = LabelledImages(torch.full((9, 3, 8, 8), 7, dtype=torch.uint8), torch.full((9,), -1), ("a", "b", "c"))
    augmentation = Augmentation(crop_padding=0, mixup=0.4)
    data = training_data(unlabelled=more, batch_size=6, augmentation=augmentation)
    data.trainer = _trainer()  # its device and number of processes
    batches, resumed = data.train_dataloader(), data.train_dataloader()
    whole = [*batches]
    assert len(whole) == len(batches) == STEPS
    assert {(len(images), len(targets)) for images, targets in whole} == {(6, 3)}
    plain = training_data(batch_size=3, augmentation=augmentation)
    assert plain.mean == data.mean
    assert all(map(torch.equal, (whole[0][0][:3], whole[0][1]), TrainingBatches(plain).batch(0)))
    assert all(images[3:].var((0, 2, 3)).max() < 1e-9 for images, _ in whole)
    resumed.load_state_dict({"position": 2})
    assert all(map(torch.equal, next(iter(resumed)), whole[2]))
    with pytest.raises(InputError, match="batch_size 5: half of a batch has no labels, so it must be even"):
        training_data(unlabelled=more)


def test_random_numbers_differ_between_epochs_of_a_plain_lightning_trainer():
    network, random_numbers = nn.Sequential(nn.Flatten(), nn.Linear(6, 2)), []
    network.register_forward_hook(lambda *_: random_numbers.append(torch.rand(()).item()))
    batches = [(torch.rand(3, 1, 2, 3), torch.tensor([0, 1, 0])) for _ in range(3)]
    data = DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch)
    _trainer(max_epochs=3).fit(Classifier(network, num_classes=2, steps=9), data)
    assert len({*random_numbers}) == len(random_numbers) == 9


def test_an_average_copies_infinite_and_integer_buffers():
    network = nn.Linear(3, 3)
    network.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))
    network.register_buffer("count", torch.tensor(0))
    average = MovingAverage(network)
    average.update(network, is_first=True)
    with torch.no_grad():
        network.weight.add_(1.0)
        network.count.add_(5)
    average.update(network, is_first=False)
    assert torch.equal(average.network.mask, network.mask) and average.network.count == 5
    torch.testing.assert_close(average.network.weight, network.weight - 0.5)


EVERY_STEP = [f"{step}/7" for step in range(1, 8)]


@pytest.mark.parametrize(
    ("least", "most", "printed"), [(0.0, 99.0, EVERY_STEP), (99.0, 99.0, ["7/7"]), (99.0, 0.0, EVERY_STEP)]
)
def test_progress_lines_are_few_and_the_last_one_is_complete(monkeypatch, console, tmp_path, least, most, printed):
    monkeypatch.setattr(callbacks, "MIN_SECONDS_BETWEEN_LINES", least)
    monkeypatch.setattr(callbacks, "MAX_SECONDS_BETWEEN_LINES", most)
    monkeypatch.setattr(callbacks, "MAX_PROGRESS_LINES", 6)
    shown = callbacks.RunProgress("run", batch_size=5, path=tmp_path / "progress.json", console=console)
    _trainer(max_steps=STEPS, callbacks=[shown]).fit(_classifier(), training_data())
    lines = console.file.getvalue().splitlines()
    assert [line.split()[2] for line in lines] == printed
    assert [line for line in lines if line.endswith("finishing")] == lines[-1:]


def test_training_steps_are_compiled_and_evaluation_is_not(monkeypatch):
    calls = []

    def count(forward, *, dynamic):
        return lambda images: (calls.append(len(images)), forward(images))[1]

    monkeypatch.setattr(torch, "compile", count)
    module = fit(_classifier(compile=True), training_data())
    assert calls == [5] * STEPS
    module(torch.zeros(2, 3, 8, 8))
    assert len(calls) == STEPS
    eager = fit(_classifier(), training_data())
    assert module.state_dict().keys() == eager.state_dict().keys()
    torch.testing.assert_close(module.network.state_dict(), eager.network.state_dict())
