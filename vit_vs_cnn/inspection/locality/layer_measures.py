"""All that is accumulated of one layer of attention while images go by."""

import torch
from torch import Tensor

from vit_vs_cnn.inspection.locality.assignment import HeadAssignment, HeadAssignmentMetric
from vit_vs_cnn.inspection.locality.attention_layers import AttentionLayer, LayerPass, to_map
from vit_vs_cnn.inspection.locality.convolution_fit import (
    ConvolutionFit,
    ExplainedShare,
    FittedConvolution,
    crop_map,
)
from vit_vs_cnn.inspection.locality.distance import AttentionDistanceMetric, uniform_distance
from vit_vs_cnn.inspection.locality.entropy import AttentionEntropyMetric
from vit_vs_cnn.inspection.locality.gaussian_head import GaussianHeadsMetric
from vit_vs_cnn.inspection.locality.head_centre import HeadCentresMetric
from vit_vs_cnn.inspection.locality.offsets import Reach
from vit_vs_cnn.inspection.locality.report import HeadLocality, LayerLocality
from vit_vs_cnn.inspection.locality.static_attention import StaticAttention, static_output
from vit_vs_cnn.inspection.locality.variance import VarianceSharesMetric


class LayerMeasures:
    """First ``fit`` every batch to fit on, then ``hold_out`` every other; then ``report``.

    Arguments:
        index: of the layer.
        layer: it.
        example: what the layer does to some images.
        reach: see ``weights_by_offset``.
        kernel_sizes: of the ladder.
        replace: kernel sizes of the convolutions fitted to take the layer's place.
        ridge: see ``ConvolutionFit``.
    """

    def __init__(
        self,
        index: int,
        layer: AttentionLayer,
        example: LayerPass,
        *,
        reach: Reach,
        kernel_sizes: tuple[int, ...],
        replace: tuple[int, ...],
        ridge: float,
    ) -> None:
        self.index, self.layer, self.reach, self.kernel_sizes = index, layer, reach, kernel_sizes
        heads, tokens, device = example.weights.shape[1], example.weights.shape[2], example.weights.device
        place = {"grid_size": layer.grid_size, "extra_tokens": layer.extra_tokens}
        seen = layer.visible(reach)
        self.shares = VarianceSharesMetric(heads, **place, reach=reach).to(device)
        self.log_shares = VarianceSharesMetric(heads, **place, reach=seen, log=True).to(device)
        self.entropy = AttentionEntropyMetric(heads, **place, reach=reach).to(device)
        self.gaussian = GaussianHeadsMetric(heads, **place, reach=reach).to(device)
        self.centres = HeadCentresMetric(heads, **place, reach=reach).to(device)
        self.distance = AttentionDistanceMetric(heads, **place, patch_size=layer.pixels).to(device)
        self.static = StaticAttention(heads, tokens).to(device)
        self.assignment = HeadAssignmentMetric(heads, **place, reach=reach).to(device) if min(reach) > 0 else None
        channels = self._map(example.inputs).shape[1], self._map(example.outputs).shape[1]
        self.ladder = ConvolutionFit(*channels, kernel_sizes=kernel_sizes, ridge=ridge).to(device)
        self.stand_in = None
        if replace:
            self.stand_in = ConvolutionFit(*channels, kernel_sizes=replace, padding=layer.padding, ridge=ridge).to(
                device
            )
        self.fitted: dict[int, FittedConvolution | None] = {}
        self.mean_weights: Tensor | None = None
        names = ["static", *map(str, kernel_sizes)]
        self.explained = ExplainedShare(names, channels[1]).to(device)

    def fit(self, layer: LayerPass) -> None:
        """Add a batch of the images to fit on."""
        for metric in (self.shares, self.log_shares, self.entropy, self.gaussian, self.centres, self.distance):
            metric.update(layer.weights)
        self.static.update(layer.weights)
        if self.assignment is not None:
            self.assignment.update(layer.weights)
        inputs, outputs = self._map(layer.inputs), self._map(layer.outputs)
        self.ladder.update(inputs, outputs)
        if self.stand_in is not None:
            self.stand_in.update(inputs, outputs)

    def solve(self) -> None:
        """Fit: what is held out is predicted by this."""
        self.fitted = self.ladder.compute()
        self.mean_weights = self.static.compute()

    @torch.no_grad()
    def hold_out(self, layer: LayerPass) -> None:
        """Add a batch of the images that were not fitted."""
        assert self.mean_weights is not None
        margin = max(self.kernel_sizes) // 2
        inputs, outputs = self._map(layer.inputs), crop_map(self._map(layer.outputs), margin)
        unknown = torch.full_like(outputs, torch.nan)
        static = static_output(self.layer.measured, layer.inputs, self.mean_weights)
        predictions = {"static": unknown if static is None else crop_map(self._map(static), margin)}
        for size, fitted in self.fitted.items():
            seen = crop_map(inputs, margin - size // 2).double()
            predictions[str(size)] = unknown if fitted is None else fitted(seen)
        self.explained.update(outputs, predictions)

    def replacements(self) -> dict[int, FittedConvolution]:
        """The convolutions that can take the layer's place, by kernel size; those with too few images are missing."""
        found = {} if self.stand_in is None else self.stand_in.compute()
        return {size: fitted for size, fitted in found.items() if fitted is not None}

    def report(self) -> LayerLocality:
        """All but the replacements."""
        shares = self.explained.compute()
        assignment = HeadAssignment({}, 3, *[float("nan")] * 5)
        if self.assignment is not None:
            assignment = self.assignment.compute()
        return LayerLocality(
            layer=self.index,
            name=self.layer.name,
            grid_size=self.layer.grid_size,
            reach=self.reach,
            uniform_distance=uniform_distance(self.layer.grid_size, self.layer.pixels),
            heads=self._heads(),
            head_of_offset=assignment.head_of_offset or None,
            mass=assignment.mass,
            coverage=assignment.coverage,
            null_mass=assignment.null_mass,
            null_coverage=assignment.null_coverage,
            p_value=assignment.p_value,
            ladder={size: shares[str(size)] for size in self.kernel_sizes},
            static=shares["static"],
        )

    def _heads(self) -> list[HeadLocality]:
        # torchmetrics drops the dimension of heads where there is one head.
        shares, logs = ([part.reshape(-1) for part in found.compute()] for found in (self.shares, self.log_shares))
        gaussian, centres = self.gaussian.compute(), self.centres.compute()
        alpha, gaussian_r2, width, spread, entropy, distance = (
            found.reshape(-1).tolist()
            for found in (
                gaussian.alpha,
                gaussian.r_squared,
                centres.width,
                centres.spread,
                self.entropy.compute(),
                self.distance.compute(),
            )
        )
        uniform = uniform_distance(self.layer.grid_size, self.layer.pixels)
        return [
            HeadLocality(
                layer=self.index,
                head=head,
                relative=shares[0][head].item(),
                positional=shares[1][head].item(),
                content=shares[2][head].item(),
                log_relative=logs[0][head].item(),
                log_positional=logs[1][head].item(),
                log_content=logs[2][head].item(),
                entropy=entropy[head],
                alpha=alpha[head],
                offset=_pair(gaussian.offset[head]),
                gaussian_r2=gaussian_r2[head],
                centre=_pair(centres.centre[head]),
                width=width[head],
                spread=spread[head],
                distance=distance[head],
                distance_ratio=distance[head] / uniform if uniform else float("nan"),
            )
            for head in range(len(entropy))
        ]

    def _map(self, tokens: Tensor) -> Tensor:
        return to_map(tokens, self.layer.grid_size, self.layer.extra_tokens)


def _pair(values: Tensor) -> tuple[float, float]:
    rows, cols = values.tolist()
    return rows, cols
