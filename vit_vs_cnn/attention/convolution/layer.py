"""Multi-head attention over a feature map with one head per offset of a kernel: a convolution, until it is released."""

import math
from collections.abc import Sequence

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.checks import check_choice, check_positive
from vit_vs_cnn.attention.convolution.geometry import fold_copies, read_geometry, windows_of
from vit_vs_cnn.attention.convolution.global_attention import QuadraticScores, axis_weights, global_attention
from vit_vs_cnn.attention.convolution.windows import (
    WindowScores,
    in_chunks,
    shared_window_attention,
    shared_window_attention_reference,
    tiles_to_grid,
)
from vit_vs_cnn.attention.shapes import Images, Sizes

FORMS = ("window", "quadratic")
#: Default sharpness by form. At 46 the largest weight of the quadratic form rounds to 1 in every dtype.
SHARPNESS = {"window": math.inf, "quadratic": 46.0}
RELEASED_SHARPNESS = 5.0


class ConvolutionalAttention(nn.Module):
    """Attention whose head h looks at offset D_h of a kernel: ``conv(X)[q] = sum_h X[q + D_h] W_h + b``.

    ``MHSA(X)[q] = sum_h (sum_k w_h[q, k] X[k]) W_V^h W_O^h + b``, with one head for every offset. The weights are

    - form "quadratic": ``w_h[q, .] = softmax_k(-alpha |k - q - D_h|^2)`` over all tokens, which is the inner product of
      the relative code ``(|d|^2, d_1, d_2)`` with ``-alpha (1, -2 D_h1, -2 D_h2)``;
    - form "window": ``w_h[q, .] = softmax_s(B[h, s])`` over the places s of a window around q, with ``B = 0`` at the
      offset of the head and ``-beta`` elsewhere.

    Theorem: with ``W_V^h W_O^h = W_h`` it tends to the convolution as alpha or beta grow. For the quadratic form the
    largest weight rounds to exactly 1 from alpha > ln(4 * 2^m) on, m the bits of the significand: 38.1 in float64, 18.1
    in float32, 9 to 10 in float16, 7 to 8 in bfloat16. The other weights are then at most exp(-alpha), not zero. beta =
    infinity is exact. At finite beta, t = exp(-beta) and P places, ``MHSA(X)[q] = [(1 - t) conv(X)[q] + t box(X)[q]
    sum_h W_h] / (1 + (P - 1) t) + b``; at finite alpha the image is blurred by the discrete Gaussian ``exp(-alpha
    d^2)`` before it is convolved.

    Rank condition: a head needs ``head_dim >= rank(W_h)``. Else the best kernel misses ``sum_h sum_{r > head_dim}
    sigma_r(W_h)^2``: for a random 32 x 32 x 3 x 3 kernel .89, .70, .37, .10 and 0 of its energy at head_dim 1, 3, 8, 16
    and 32. A standard ViT (head_dim = embed_dim / heads) expresses only convolutions of low rank per offset.

    Boundary, what the quadratic form does for each padding mode:

    =============  =========================================================================================
    "zeros"        tokens of zeros around the image, as many as the convolution pads; they take part in the softmax
    "replicate"    nothing: outside of the image the nearest token wins
    "circular"     distances around the torus
    "reflect"      tokens around the image that copy the reflected ones
    padding 0      queries on the interior only ("valid")
    =============  =========================================================================================

    The window form surrounds the image by the tokens that the convolution pads. Stride is a subset of the queries,
    dilation scales the offsets, groups make W_V and W_O block-structured.

    Released, the position of every head is learned, and the content has its say:
    ``scores[h, s] = (x_q W_Q^h) . (x_s W_K) / sqrt(key_dim) + B[h, s]`` (or the quadratic code, with
    a sharpness and a centre for each head). W_K starts at zero: the function starts unchanged while gradients flow.

    Reference: Cordonnier, Loukas & Jaggi 2020, theorem 1 and lemma 1; Ramachandran et al. 2019 (windows).
    Differs: paddings, strides, dilations and groups of ``nn.Conv2d``; without ``head_dim`` the product ``W_V W_O`` of a
    head is one matrix, and the tokens themselves are the values, shared by all heads; keys are shared, too (Shazeer
    2019). The quadratic softmax is a product of one over the rows and one over the columns, and is computed as such.

    Arguments:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode: as those of
            ``nn.Conv2d``; numbers or (rows, cols). ``padding`` may also be ((before, after), (before, after)).
        form: "window" or "quadratic".
        sharpness: beta of the window, alpha of the quadratic form; infinity and 46 if None, 5 where released.
        window_size: (rows, cols) of the window or one number, if larger than the kernel; a 1x1 kernel keeps its own.
        head_dim: width of a head (in each group); None for one matrix per head, of full rank.
        released: whether positions and content are learned.
        key_dim: width of the queries and keys of the content.
        compensate: whether W_h is chosen so that heads of a window that are not sharp compute the convolution all the
            same. ``e_h = (Z w_h - t 1) / (1 - t)``, ``Z = 1 + (P - 1) t``: a kernel is a combination of heads, exactly.
            A window larger than the kernel needs the constant for it: one more head, which looks at all places alike.
            None: where a window is released.

    Raises:
        ValueError: if a form or a padding mode is unknown, a number does not fit, or the sharpness is infinite where
            it must be finite (quadratic, or released: a one-hot softmax has no gradient).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        *,
        stride: Sizes = 1,
        padding: Sizes | Sequence[Sequence[int]] = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        form: str = "window",
        sharpness: float | None = None,
        window_size: Sizes | None = None,
        head_dim: int | None = None,
        released: bool = False,
        key_dim: int = 8,
        compensate: bool | None = None,
    ) -> None:
        super().__init__()
        self.form, self.padding_mode = form, padding_mode
        check_choice("form", form, FORMS)
        if window_size is not None and form == "quadratic":
            raise ValueError(f'window_size goes with form="window" alone, but is {window_size}')
        if groups < 1 or in_channels % groups or out_channels % groups or min(in_channels, out_channels) < 1:
            raise ValueError(
                f"groups must divide in_channels and out_channels, but groups={groups}, in_channels={in_channels} and "
                f"out_channels={out_channels}"
            )
        self.geometry = read_geometry(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            padding_mode=padding_mode,
            window_size=window_size,
        )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        if compensate and form == "quadratic":
            raise ValueError('compensate goes with form="window" alone')
        self.compensate = form == "window" and (released if compensate is None else compensate)
        heads, widths = self.num_heads, (in_channels // groups, out_channels // groups)
        self.head_dim = head_dim
        if head_dim is not None and not 1 <= head_dim <= min(widths):
            raise ValueError(f"head_dim must be between 1 and {min(widths)}, the largest rank, but is {head_dim}")
        # One place leaves nothing to choose from.
        self.released = released and self.geometry.places > 1
        self.sharpness = _sharpness(sharpness, form=form, released=released)
        inner = widths[0] if head_dim is None else head_dim
        self.value_weight = None if head_dim is None else nn.Parameter(torch.empty(heads, groups, inner, widths[0]))
        self.output_weight = nn.Parameter(torch.empty(groups, widths[1], heads, inner))
        self.output_bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        if self.released:
            check_positive(key_dim=key_dim)
            self.query_weight = nn.Parameter(torch.empty(heads, key_dim, in_channels))
            self.key_weight = nn.Parameter(torch.empty(key_dim, in_channels))
            if form == "window":
                self.position_bias = nn.Parameter(torch.empty(heads, self.geometry.places))
            else:
                self.head_sharpness = nn.Parameter(torch.empty(heads))
                self.head_centres = nn.Parameter(torch.empty(heads, 2))
        self.init_weights()

    @torch.no_grad()
    def init_weights(self) -> None:
        """W_h uniform as torch's convolution, W_Q normal, W_K zero, every head at its offset."""
        places = self.in_channels // self.groups * self.geometry.heads
        kernel = torch.empty(self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        self.set_kernel(nn.init.uniform_(kernel, -(places**-0.5), places**-0.5))
        if self.output_bias is not None:
            nn.init.uniform_(self.output_bias, -(places**-0.5), places**-0.5)
        if not self.released:
            return
        nn.init.normal_(self.query_weight, std=self.in_channels**-0.5)
        nn.init.zeros_(self.key_weight)
        if self.form == "window":
            self.position_bias.copy_(self.window_bias())
        else:
            nn.init.constant_(self.head_sharpness, self.sharpness)
            self.head_centres.copy_(self.geometry.offsets(self.head_centres.device))

    @property
    def kernel_size(self) -> tuple[int, int]:
        """(rows, cols) of the kernel."""
        return self.geometry.rows.kernel, self.geometry.cols.kernel

    @property
    def num_heads(self) -> int:
        """One for every offset, and one that looks at the whole window where it is needed to compensate."""
        return self.geometry.heads + int(self.compensate and self.geometry.places > self.geometry.heads)

    @torch.no_grad()
    def set_kernel(self, kernel: Float[Tensor, "out_channels group_channels kernel_rows kernel_cols"]) -> None:
        """Make the heads compute a convolution with this kernel, or the nearest of rank ``head_dim``."""
        matrices = rearrange(kernel, "(g o) c y x -> (y x) g o c", g=self.groups)
        if self.compensate:
            matrices = self._compensated(matrices)
        if self.value_weight is None:
            self.output_weight.copy_(rearrange(matrices, "heads g o c -> g o heads c"))
            return
        left, sizes, right = torch.linalg.svd(matrices, full_matrices=False)
        roots = sizes[..., : self.head_dim].sqrt()
        self.output_weight.copy_(rearrange(left[..., : self.head_dim] * roots[..., None, :], "h g o r -> g o h r"))
        self.value_weight.copy_(roots[..., None] * right[..., : self.head_dim, :])

    def _compensated(self, matrices: Tensor) -> Tensor:
        """``W'`` with ``sum_h w_h[s] W'_h = W_s`` at the places of the kernel, and 0 at the others."""
        exact = matrices.double()
        weights = self.window_bias().to(exact).softmax(dim=-1)
        combinations = torch.linalg.pinv(weights)[self.geometry.targets(exact.device)]
        return torch.einsum("sh,sgoc->hgoc", combinations, exact).to(matrices)

    def window_bias(self) -> Float[Tensor, "heads places"]:
        """0 at the offset of each head, ``-beta`` at the other places of the window."""
        weight = self.output_weight
        bias = weight.new_full((self.geometry.heads, self.geometry.places), -self.sharpness)
        bias.scatter_(1, self.geometry.targets(weight.device)[:, None], 0.0)
        return torch.cat([bias, bias.new_zeros(self.num_heads - len(bias), self.geometry.places)])

    def forward(
        self, images: Images, *, return_weights: bool = False
    ) -> (
        Float[Tensor, "batch out_channels out_rows out_cols"]
        | tuple[Float[Tensor, "batch out_channels out_rows out_cols"], Float[Tensor, "batch heads queries tokens"]]
    ):
        """What each query gathers; with ``return_weights`` also the weights ``(batch, heads, queries, tokens)``.

        The queries are the places of the output row by row, the tokens those of ``images``. A token of padding that
        copies one of the image adds its weight to that one's; the share of tokens of zeros is missing from the rows.
        """
        if images.shape[1] != self.in_channels:
            raise ValueError(f"images must have in_channels={self.in_channels} channels, but have {images.shape[1]}")
        counts = self.geometry.counts(images)
        if not self.released:
            numbers = math.prod(counts) * self.in_channels * max(self.geometry.places, self.geometry.heads)
            output = in_chunks(self._fixed, images, numbers=numbers)
            return (output, self._fixed_weights(images)) if return_weights else output
        if self.form == "quadratic":
            output, weights = self._global(images)
            return (output, weights) if return_weights else output
        if return_weights:
            return self._windows_reference(images)
        if images.is_meta:  # where costs are counted: those of the equation, not the ones of tiles
            return self._windows_reference(images)[0]
        scores = WindowScores(self.query_weight, self.key_weight, self.position_bias)
        numbers = math.prod(counts) * self.num_heads * max(2 * self.geometry.places, self.in_channels)
        return in_chunks(self._tiled, images, *scores, numbers=numbers)

    def _fixed(self, images: Tensor) -> Tensor:
        """Heads that do not look at the content: one matrix of weights for all images."""
        counts = self.geometry.counts(images)
        if self.form == "window":
            padded = self.geometry.padded(images, counts)
            windows = rearrange(windows_of(self.geometry, padded), "b c r s y x -> b (y x) (c r s)")
            weights = self.window_bias().softmax(dim=-1).to(images.dtype)
            gathered = rearrange(weights @ windows, "b h (c n) -> b h c n", c=self.in_channels)
        else:
            rows, cols = self._axis_weights(images)
            by_col = images @ rearrange(cols, "e j x -> x (e j)")
            both = rearrange(rows, "a i y -> (a i) y") @ by_col
            gathered = rearrange(both, "b c (a i) (e j) -> b (a e) c (i j)", a=len(rows), e=len(cols))
        return self._project(gathered).unflatten(-1, counts)

    def _project(self, gathered: Float[Tensor, "batch heads channels queries"]) -> Tensor:
        """``sum_h A_h X W_V^h W_O^h + b``, channels before queries."""
        gathered = rearrange(gathered, "b h (g c) n -> b h g c n", g=self.groups)
        if self.value_weight is not None:
            gathered = self.value_weight @ gathered
        output = self.output_weight.flatten(2) @ rearrange(gathered, "b h g c n -> b g (h c) n")
        output = output.flatten(1, 2)
        return output if self.output_bias is None else output + self.output_bias[:, None]

    def _axis_weights(self, images: Tensor) -> list[Tensor]:
        sharpness = self.output_weight.new_tensor(self.sharpness)
        sizes = zip(self.geometry, images.shape[2:], strict=True)
        return [axis_weights(axis, size, sharpness, images.dtype) for axis, size in sizes]

    def _fixed_weights(self, images: Tensor) -> Tensor:
        size = (images.shape[2], images.shape[3])
        if self.form == "window":
            sources = self.geometry.window_sources(size, images.device)
            weights = self.window_bias().softmax(dim=-1).to(images.dtype)
            weights = fold_copies(weights[:, None].expand(-1, len(sources), -1), sources, math.prod(size))
        else:
            weights = torch.einsum("aiy,ejx->aeijyx", *self._axis_weights(images))
            weights = rearrange(weights, "a e i j y x -> (a e) (i j) (y x)")
        return weights.expand(images.shape[0], -1, -1, -1)

    def _tiled(self, images: Tensor, *scores: Tensor) -> Tensor:
        gathered = shared_window_attention(images, WindowScores(*scores), self.geometry)
        return tiles_to_grid(self._project_rows(gathered), images, self.geometry)

    def _project_rows(self, gathered: Float[Tensor, "queries heads channels"]) -> Float[Tensor, "queries out_channels"]:
        """``_project`` with a row for each query."""
        gathered = gathered.unflatten(-1, (self.groups, -1))
        if self.value_weight is not None:
            gathered = torch.einsum("nhgc,hgrc->nhgr", gathered, self.value_weight)
        output = torch.einsum("nhgr,gohr->ngo", gathered, self.output_weight).flatten(1)
        return output if self.output_bias is None else output + self.output_bias

    def _windows_reference(self, images: Tensor) -> tuple[Tensor, Tensor]:
        scores = WindowScores(self.query_weight, self.key_weight, self.position_bias)
        gathered, weights = shared_window_attention_reference(images, scores, self.geometry)
        size = (images.shape[2], images.shape[3])
        sources = self.geometry.window_sources(size, images.device)
        weights = fold_copies(rearrange(weights, "b n h s -> b h n s"), sources, math.prod(size))
        output = self._project_rows(gathered.flatten(0, 1)).unflatten(0, (images.shape[0], -1))
        return output.mT.unflatten(-1, self.geometry.counts(images)), weights

    def _global(self, images: Tensor) -> tuple[Tensor, Tensor]:
        scores = QuadraticScores(self.query_weight, self.key_weight, self.head_sharpness, self.head_centres)
        gathered, weights = global_attention(images, scores, self.geometry)
        return self._project(gathered.mT).unflatten(-1, self.geometry.counts(images)), weights

    def extra_repr(self) -> str:
        window = self.geometry.rows.window, self.geometry.cols.window
        released = ", released" if self.released else ""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, form={self.form}, "
            f"window_size={window}, sharpness={self.sharpness}{released}"
        )


def _sharpness(given: float | None, *, form: str, released: bool) -> float:
    sharpness = (RELEASED_SHARPNESS if released else SHARPNESS[form]) if given is None else given
    if not sharpness > 0:
        raise ValueError(f"sharpness must be above 0, but is {sharpness}")
    if math.isinf(sharpness) and (released or form == "quadratic"):
        why = "a one-hot softmax has no gradient" if released else "the quadratic code has no limit"
        raise ValueError(f"sharpness must be finite here ({why}), but is {sharpness}")
    return sharpness
