"""The convolution nearest to a layer, by least squares over as many batches as there are."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torchmetrics import Metric

from vit_vs_cnn.errors import InputError

#: What stands beyond the edge of a map: "valid" is nothing, and only outputs that need nothing beyond are fitted.
PADDINGS = {"valid": None, "zeros": "constant", "replicate": "replicate", "circular": "circular"}
#: The penalty's share of the mean square of an input: no shrinkage that one sees, yet layer-normed tokens, whose
#: channels sum to zero, have one solution.
RIDGE = 1e-10


class FittedConvolution(nn.Module):
    """A convolution K x K of stride 1 over maps of any floating point type."""

    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        weight: Float[Tensor, "out_channels in_channels kernel_size kernel_size"],
        bias: Float[Tensor, "out_channels"],
        padding: str = "valid",
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.padding = padding

    def forward(
        self, maps: Float[Tensor, "batch in_channels rows cols"]
    ) -> Float[Tensor, "batch out_channels out_rows out_cols"]:
        padded = pad_map(maps, self.weight.shape[-1], self.padding)
        return F.conv2d(padded, self.weight.to(maps), self.bias.to(maps))


class ConvolutionFit(Metric):
    """``W_k, b_k = argmin sum |Y - W * X - b|^2 + ridge m |W|^2`` for several kernel sizes k at once.

    m is the mean square of the centred inputs. All kernel sizes see the same outputs: with "valid" padding those whose
    largest kernel stays on the map. So the explained share never falls as k grows, on the data fitted.

    The normal equations of the largest kernel are kept, (in_channels k^2)^2 numbers: those of the smaller kernels are
    parts of them. A kernel with as many unknowns as outputs per channel, or more, is not fitted but given as None: it
    would explain anything.

    Arguments:
        padding: "valid", "zeros", "replicate" or "circular".
    """

    full_state_update = False
    gram: Tensor
    cross: Tensor
    input_sums: Tensor
    output_sums: Tensor
    rows: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        kernel_sizes: Sequence[int] = (1, 3, 5),
        padding: str = "valid",
        ridge: float = RIDGE,
    ) -> None:
        super().__init__()
        check_kernel_sizes(kernel_sizes)
        if padding not in PADDINGS:
            raise InputError(f'padding must be one of {", ".join(PADDINGS)}, but is "{padding}"')
        if ridge <= 0.0:
            raise InputError(f"ridge must be positive, but is {ridge}")
        self.kernel_sizes, self.padding, self.ridge = tuple(kernel_sizes), padding, ridge
        self.in_channels = in_channels
        unknowns = in_channels * max(kernel_sizes) ** 2
        for name, shape in {
            "gram": (unknowns, unknowns),
            "cross": (unknowns, out_channels),
            "input_sums": (unknowns,),
            "output_sums": (out_channels,),
            "rows": (),
        }.items():
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def update(
        self,
        inputs: Float[Tensor, "batch in_channels rows cols"],
        outputs: Float[Tensor, "batch out_channels rows cols"],
    ) -> None:
        patches, targets = rows_of_maps(inputs, outputs, max(self.kernel_sizes), self.padding)
        self.gram.addmm_(patches.mT, patches)
        self.cross.addmm_(patches.mT, targets)
        self.input_sums += patches.sum(dim=0)
        self.output_sums += targets.sum(dim=0)
        self.rows += len(patches)

    def compute(self) -> dict[int, FittedConvolution | None]:
        return {size: self._solve(size) for size in self.kernel_sizes}

    def _solve(self, kernel_size: int) -> FittedConvolution | None:
        kept = self._inner(kernel_size)
        if self.rows <= len(kept):
            return None
        input_mean, output_mean = self.input_sums[kept] / self.rows, self.output_sums / self.rows
        gram = self.gram[kept[:, None], kept] / self.rows - input_mean.outer(input_mean)
        cross = self.cross[kept] / self.rows - input_mean.outer(output_mean)
        # Inputs that never vary have a Gram matrix of zeros: any penalty will do.
        penalty = self.ridge * gram.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny ** 0.5)
        gram.diagonal().add_(penalty)
        solution = torch.cholesky_solve(cross, torch.linalg.cholesky(gram))
        bias = output_mean - input_mean @ solution
        weight = solution.mT.unflatten(1, (self.in_channels, kernel_size, kernel_size))
        return FittedConvolution(weight, bias, self.padding)

    def _inner(self, kernel_size: int) -> Tensor:
        """Where the unknowns of a smaller kernel are among those of the largest."""
        largest = max(self.kernel_sizes)
        unknowns = torch.arange(self.in_channels * largest**2, device=self.gram.device)
        return crop_map(unknowns.view(1, self.in_channels, largest, largest), (largest - kernel_size) // 2).flatten()


class ExplainedShare(Metric):
    """``R^2 = 1 - sum |Y - prediction|^2 / sum |Y - mean Y|^2`` over all channels together, for several predictions.

    The mean is that of every channel over images and places. Not a number if Y does not vary.
    """

    full_state_update = False
    errors: Tensor
    sums: Tensor
    squares: Tensor
    rows: Tensor

    def __init__(self, names: Sequence[str], channels: int) -> None:
        super().__init__()
        self.names = tuple(names)
        for name, shape in {"errors": (len(self.names),), "sums": (channels,), "squares": (), "rows": ()}.items():
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def update(
        self,
        outputs: Float[Tensor, "batch channels rows cols"],
        predictions: dict[str, Float[Tensor, "batch channels rows cols"]],
    ) -> None:
        outputs = outputs.double()
        for index, name in enumerate(self.names):
            self.errors[index] += (outputs - predictions[name].double()).square().sum()
        self.sums += outputs.sum(dim=(0, 2, 3))
        self.squares += outputs.square().sum()
        self.rows += outputs.shape[0] * outputs.shape[2] * outputs.shape[3]

    def compute(self) -> dict[str, float]:
        return {name: 1 - share for name, share in self.unexplained().items()}

    def unexplained(self) -> dict[str, float]:
        """``1 - R^2``, exact where it is next to nothing."""
        total = self.squares - self.sums.square().sum() / self.rows
        rounding = torch.finfo(torch.float64).eps * self.squares
        shares = self.errors / torch.where(total > rounding, total, torch.nan)
        return dict(zip(self.names, shares.tolist(), strict=True))


def rows_of_maps(inputs: Tensor, outputs: Tensor, kernel_size: int, padding: str) -> tuple[Tensor, Tensor]:
    """What the kernel sees at each place, and what it should give there."""
    patches = F.unfold(pad_map(inputs.double(), kernel_size, padding), kernel_size)
    outputs = crop_map(outputs, kernel_size // 2) if padding == "valid" else outputs
    return patches.transpose(1, 2).flatten(0, 1), outputs.double().flatten(2).transpose(1, 2).flatten(0, 1)


def pad_map(maps: Float[Tensor, "batch channels rows cols"], kernel_size: int, padding: str) -> Tensor:
    """The map with K // 2 more on every side, as the padding says."""
    mode = PADDINGS[padding]
    return maps if mode is None or kernel_size == 1 else F.pad(maps, (kernel_size // 2,) * 4, mode=mode)


def crop_map(maps: Tensor, margin: int) -> Tensor:
    """The map without its outermost rows and cols."""
    rows, cols = maps.shape[-2:]
    return maps[..., margin : rows - margin, margin : cols - margin]


def check_kernel_sizes(kernel_sizes: Sequence[int]) -> None:
    """Raise an ``InputError`` unless they are odd, positive and at least one."""
    if not kernel_sizes or any(size < 1 or size % 2 == 0 for size in kernel_sizes):
        raise InputError(f"kernel sizes must be odd and at least one, but are {list(kernel_sizes)}")
