import copy

import pytest
import torch
from timm.optim.muon import Muon
from torch import nn

from vit_vs_cnn.training.muon import StackedMuon
from vit_vs_cnn.training.optimization import Optimizer


class _Net(nn.Module):
    """Matrices of equal and of other shapes, one that Muon does not orthogonalize, a convolution, and vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.alike = nn.ModuleList(nn.Linear(11, 7) for _ in range(3))
        self.turned = nn.Linear(7, 11)
        self.thin = nn.Linear(7, 2)
        self.convolution = nn.Conv2d(3, 13, 3)
        self.norm = nn.LayerNorm(7)


def _stepped(optimizer: torch.optim.Optimizer, network: nn.Module, steps: range) -> None:
    for step in steps:
        torch.manual_seed(step)
        for parameter in network.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()


@pytest.mark.parametrize("options", [{}, {"nesterov": True}, {"algo": "adamuon"}, {"conv_mode": "batched"}], ids=str)
def test_muon_equals_timms_bit_for_bit(options):
    torch.manual_seed(0)
    ours = _Net()
    theirs, made = copy.deepcopy(ours), {"lr": 0.1, "weight_decay": 0.05, **options}
    _stepped(StackedMuon(ours.parameters(), **made), ours, range(5))
    _stepped(Muon(theirs.parameters(), **made), theirs, range(5))
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.grad is not None


@pytest.mark.parametrize("name", ["muon", "nmuon"])
def test_muon_in_a_config_is_the_stacked_muon(name):
    optimizer = Optimizer(name, lr=0.02, weight_decay=0.1).build(_Net())
    assert isinstance(optimizer, StackedMuon)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0, 0.1]
    assert optimizer.param_groups[0]["nesterov"] == (name == "nmuon")
