"""All that is accumulated of one layer of attention while images go by."""

from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.convolution import ConvolutionalAttention
from vit_vs_cnn.attention.multihead import MultiHeadAttention
from vit_vs_cnn.inspection.locality.assignment import Assignment, HeadAssignment
from vit_vs_cnn.inspection.locality.attention_layers import AttentionLayer, LayerPass, to_map
from vit_vs_cnn.inspection.locality.convolution_fit import ConvolutionFit, ExplainedShare, FittedConvolution, crop_map
from vit_vs_cnn.inspection.locality.measures import (
    Centres,
    Distance,
    Entropy,
    GaussianFit,
    MeanWeights,
    OverImages,
    Shares,
)
from vit_vs_cnn.inspection.locality.offsets import Reach
from vit_vs_cnn.inspection.locality.report import HeadLocality, LayerLocality


class LayerMeasures:
    """First ``fit`` every batch to fit on, then ``hold_out`` every other; then ``report``.

    Arguments:
        replace: kernel sizes of the convolutions fitted to take the layer's place.
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
    ) -> None:
        self.index, self.layer, self.reach, self.kernel_sizes = index, layer, reach, kernel_sizes
        heads, device = example.weights.shape[1], example.weights.device
        place = {"grid_size": layer.grid_size, "extra_tokens": layer.extra_tokens}
        self.of_distance = Distance(**place, patch_size=layer.pixels)
        measures = {
            "shares": Shares(**place, reach=reach),
            "log_shares": Shares(**place, reach=layer.visible(reach), log=True),
            "entropy": Entropy(**place, reach=reach),
            "gaussian": GaussianFit(**place, reach=reach),
            "centres": Centres(**place, reach=reach),
            "distance": self.of_distance,
            "mean_weights": MeanWeights(**place),
        }
        if min(reach) > 0:
            measures["assignment"] = Assignment(**place, reach=reach)
        self.measures = {name: OverImages(measure, heads).to(device) for name, measure in measures.items()}
        channels = self._map(example.inputs).shape[1], self._map(example.outputs).shape[1]
        self.ladder = ConvolutionFit(*channels, kernel_sizes=kernel_sizes).to(device)
        fit = {"kernel_sizes": replace, "padding": layer.padding}
        self.stand_in = ConvolutionFit(*channels, **fit).to(device) if replace else None
        self.fitted: dict[int, FittedConvolution | None] = {}
        self.mean_weights: Tensor | None = None
        names = ["static", *map(str, kernel_sizes)]
        self.explained = ExplainedShare(names, channels[1]).to(device)

    def fit(self, layer: LayerPass) -> None:
        for metric in self.measures.values():
            metric.update(layer.weights)
        inputs, outputs = self._map(layer.inputs), self._map(layer.outputs)
        self.ladder.update(inputs, outputs)
        if self.stand_in is not None:
            self.stand_in.update(inputs, outputs)

    def solve(self) -> None:
        """Fit: what is held out is predicted by this."""
        self.fitted = self.ladder.compute()
        self.mean_weights = self.measures["mean_weights"].compute()

    @torch.no_grad()
    def hold_out(self, layer: LayerPass) -> None:
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
        if "assignment" in self.measures:
            assignment = self.measures["assignment"].compute()
        numbers = ("mass", "coverage", "null_mass", "null_coverage", "p_value")
        return LayerLocality(
            layer=self.index,
            name=self.layer.name,
            grid_size=self.layer.grid_size,
            reach=self.reach,
            uniform_distance=self.of_distance.uniform,
            heads=self._heads(),
            head_of_offset=assignment.head_of_offset or None,
            **{name: getattr(assignment, name) for name in numbers},
            ladder={size: shares[str(size)] for size in self.kernel_sizes},
            static=shares["static"],
        )

    def _heads(self) -> list[HeadLocality]:
        found = {name: metric.compute() for name, metric in self.measures.items() if name != "assignment"}
        gaussian, centres, uniform = found["gaussian"], found["centres"], self.of_distance.uniform
        numbers = {"entropy": found["entropy"], "alpha": gaussian.alpha, "gaussian_r2": gaussian.r_squared}
        numbers |= {"width": centres.width, "spread": centres.spread, "distance": found["distance"]}
        for name in ("relative", "positional", "content"):
            numbers |= {name: getattr(found["shares"], name), f"log_{name}": getattr(found["log_shares"], name)}
        # torchmetrics drops the dimension of heads where there is one head.
        columns: dict[str, list[Any]] = {name: part.reshape(-1).tolist() for name, part in numbers.items()}
        columns["distance_ratio"] = [far / uniform if uniform else float("nan") for far in columns["distance"]]
        columns |= {"offset": _pairs(gaussian.offset), "centre": _pairs(centres.centre)}
        heads = ({name: of[head] for name, of in columns.items()} for head in range(len(columns["distance"])))
        return [HeadLocality(layer=self.index, head=head, **row) for head, row in enumerate(heads)]

    def _map(self, tokens: Tensor) -> Tensor:
        return to_map(tokens, self.layer.grid_size, self.layer.extra_tokens)


def _pairs(values: Float[Tensor, "heads 2"]) -> list[tuple[float, float]]:
    return [(rows, cols) for rows, cols in values.tolist()]


def static_output(attention: nn.Module, inputs: Tensor, weights: Float[Tensor, "heads tokens tokens"]) -> Tensor | None:
    """The output of a layer whose weights are the same for every image: ``sum_h A_h X W_V^h W_O^h + b``.

    Arguments:
        attention: a ``MultiHeadAttention``, or a ``ConvolutionalAttention`` whose queries are its tokens; None is what
            any other gives.
        inputs: tokens (batch, tokens, embed_dim) of the first, maps (batch, channels, rows, cols) of the second.
    """
    if isinstance(attention, MultiHeadAttention):
        values = attention.value_projection(inputs)
        values = rearrange(values, "b n (heads d) -> b heads n d", heads=attention.num_heads)
        merged = rearrange(weights.to(values) @ values, "b heads n d -> b n (heads d)")
        return merged if attention.output_projection is None else attention.output_projection(merged)
    if not isinstance(attention, ConvolutionalAttention):
        return None
    tokens = rearrange(inputs, "b (g c) rows cols -> b g c (rows cols)", g=attention.groups)
    values = torch.einsum("hqk,bgck->bhgcq", weights.to(tokens), tokens)
    if attention.value_weight is not None:
        values = attention.value_weight @ values
    output = torch.einsum("gohr,bhgrq->bgoq", attention.output_weight, values).flatten(1, 2)
    if attention.output_bias is not None:
        output = output + attention.output_bias[:, None]
    return output.unflatten(2, inputs.shape[2:])
