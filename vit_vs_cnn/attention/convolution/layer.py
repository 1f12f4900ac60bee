"""Multi-head attention over a feature map with one head for each offset of a kernel, which computes a convolution."""

import math
from collections.abc import Callable, Sequence

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vit_vs_cnn.attention.arguments import Images, check_choice
from vit_vs_cnn.attention.convolution.geometry import make_geometry
from vit_vs_cnn.attention.convolution.head_fit import HeadFit, fit_heads, position_scores
from vit_vs_cnn.bounds import Size2d

#: Default sharpness by form. At 46 the largest weight of the quadratic form rounds to 1 in every dtype.
SHARPNESS = {"window": math.inf, "quadratic": 46.0}
#: Default sharpness with ``released=True``.
RELEASED_SHARPNESS = 5.0
#: Width of queries and keys with ``released=True``.
KEY_DIM = 8
#: Numbers in the largest tensor of a chunk of images. A CPU is fastest while they fit into its caches.
CHUNK_NUMBERS = {"cpu": 2**22}
CHUNK_NUMBERS_ELSEWHERE = 2**27


class ConvolutionalAttention(nn.Module):
    """Attention whose head h attends to offset D_h of a kernel: ``conv(X)[q] = sum_h X[q + D_h] W_h + b``.

    ``MHSA(X)[q] = sum_h (sum_k w_h[q, k] X[k]) W_V^h W_O^h + b``, with one head for every offset. The weights are

    - form "quadratic": ``w_h[q, .] = softmax_k(-alpha |k - q - D_h|^2)`` over all tokens, padding included. This is the
      inner product of the relative code ``(|d|^2, d_1, d_2)`` with ``-alpha (1, -2 D_h1, -2 D_h2)``;
    - form "window": ``w_h[q, .] = softmax_s(B[h, s])`` over the positions s of a window around q, with ``B = 0`` at the
      offset of the head and ``-beta`` elsewhere.

    Theorem: with ``W_V^h W_O^h = W_h`` it tends to the convolution as alpha or beta grow. beta = infinity is exact. At
    finite beta, with t = exp(-beta) and the P positions of the window, ``MHSA(X)[q] = sum_h [(1 - t) X[q + D_h] + t
    box(X)[q]] W_h / (1 + (P - 1) t) + b``, where ``box(X)[q]`` is the sum of the P tokens of the window around q. At
    finite alpha the padded image is blurred by the discrete Gaussian ``exp(-alpha d^2)`` before it is convolved.

    Rank condition: a head needs ``head_dim >= rank(W_h)``. Else the best kernel misses ``sum_h sum_{r > head_dim}
    sigma_r(W_h)^2``.

    The padding of the convolution surrounds the image with tokens that take part in the softmax. Stride is a subset of
    the queries, dilation scales the offsets, groups make W_V and W_O block-structured.

    With ``released=True``, the biases B of the window are learned, and the scores also depend on the tokens:
    ``scores[h, s] = (x_q W_Q^h) . (x_s W_K) / sqrt(key_dim) + B[h, s]``. The layer starts as the convolution: W_K is
    zero, and the matrices W'_h of the heads satisfy ``sum_h w_h[s] W'_h = W_s`` at the positions of the kernel and 0 at
    the others. If the window is larger than the kernel, one more head makes this possible. It starts with equal weights
    for all positions.

    With ``num_heads``, there can be fewer heads than offsets. Each head h learns a center c_h and a sharpness alpha_h:
    ``B[h, s] = -alpha_h |s - c_h|^2``. The heads are fitted to the kernel (``fit_heads``). Their smallest possible
    error is ``rank_bound``.

    Reference: Cordonnier, Loukas & Jaggi 2020, theorem 1 and lemma 1; Ramachandran et al. 2019 (windows).
    Differs: strides, dilations and groups of ``nn.Conv2d``; without ``head_dim`` the product ``W_V W_O`` of a
    head is one matrix, and the tokens themselves are the values, shared by all heads; keys are shared, too (Shazeer
    2019). The quadratic softmax is computed as a product of one over the rows and one over the columns.

    Arguments:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias: as those of ``nn.Conv2d``;
            numbers or (rows, cols). The padding is zero. ``padding`` may also be ((before, after), (before, after)).
        form: "window" or "quadratic".
        sharpness: beta of form "window", alpha of form "quadratic". By default infinity for "window", 46 for
            "quadratic", and 5 if ``released``.
        window_size: (rows, cols) of the window or one number, at least the size of the kernel, which is the default. A
            1x1 kernel always has a window of 1x1.
        head_dim: width of a head (in each group); None for one matrix per head, of full rank.
        released: learn the biases of positions, and scores that depend on the tokens; with form "window" only.
        num_heads: number of heads at learned centers, with form "window" only; None for one head for each offset. There
            are at most as many heads as positions.

    Raises:
        ValueError: if a form is unknown, a number does not fit, or the sharpness is infinite where
            it must be finite (quadratic, or released: a one-hot softmax has no gradient).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size2d,
        *,
        stride: Size2d = 1,
        padding: Size2d | Sequence[Sequence[int]] = 0,
        dilation: Size2d = 1,
        groups: int = 1,
        bias: bool = True,
        form: str = "window",
        sharpness: float | None = None,
        window_size: Size2d | None = None,
        head_dim: int | None = None,
        released: bool = False,
        num_heads: int | None = None,
    ) -> None:
        super().__init__()
        self.form = form
        check_choice("form", form, SHARPNESS)
        if form == "quadratic" and (released or window_size is not None):
            raise ValueError(
                f'released and window_size need form="window", but released={released}, window_size={window_size}'
            )
        if num_heads is not None and (form != "window" or released or sharpness is not None or num_heads < 1):
            raise ValueError(
                f"num_heads must be at least 1, and needs form=window, no sharpness and no released, but is {num_heads}"
                f" with form={form}, sharpness={sharpness}, released={released}"
            )
        if groups < 1 or in_channels % groups or out_channels % groups or min(in_channels, out_channels) < 1:
            raise ValueError(
                f"groups must divide in_channels and out_channels, but groups={groups}, in_channels={in_channels} and "
                f"out_channels={out_channels}"
            )
        self.geometry = make_geometry(kernel_size, window_size, stride=stride, padding=padding, dilation=dilation)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.sharpness = _check_sharpness(sharpness, form=form, released=released)
        self.released = released and self.geometry.positions > 1  # one position leaves no choice
        self.learned_heads = None if num_heads is None else min(num_heads, self.geometry.positions)
        heads, widths = self.num_heads, (in_channels // groups, out_channels // groups)
        self.head_dim = head_dim
        if head_dim is not None and not 1 <= head_dim <= min(widths):
            raise ValueError(f"head_dim must be between 1 and {min(widths)}, the largest rank, but is {head_dim}")
        inner = widths[0] if head_dim is None else head_dim
        self.value_weight = None if head_dim is None else nn.Parameter(torch.empty(heads, groups, inner, widths[0]))
        self.output_weight = nn.Parameter(torch.empty(groups, widths[1], heads, inner))
        self.output_bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        if self.released:
            self.query_weight = nn.Parameter(torch.empty(heads, KEY_DIM, in_channels))
            self.key_weight = nn.Parameter(torch.empty(KEY_DIM, in_channels))
            self.position_bias = nn.Parameter(torch.empty(heads, self.geometry.positions))
        if self.learned_heads is not None:
            self.centers = nn.Parameter(torch.empty(heads, 2))
            self.log_sharpness = nn.Parameter(torch.empty(heads))
        self.init_weights()

    @torch.no_grad()
    def init_weights(self) -> None:
        """Initialize W_h uniformly as torch's convolution, W_Q normally, W_K to zero, every head at its offset.

        Learned centers are drawn from a normal distribution around the query.
        """
        fan_in = self.in_channels // self.groups * self.geometry.offsets
        if self.learned_heads is not None:
            nn.init.normal_(self.centers)
            nn.init.zeros_(self.log_sharpness)
            nn.init.uniform_(self.output_weight, -(fan_in**-0.5), fan_in**-0.5)
            if self.value_weight is not None:
                nn.init.normal_(self.value_weight, std=self.value_weight.shape[-1] ** -0.5)
            if self.output_bias is not None:
                nn.init.zeros_(self.output_bias)
            return
        kernel = torch.empty(self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        self.set_kernel(nn.init.uniform_(kernel, -(fan_in**-0.5), fan_in**-0.5))
        if self.output_bias is not None:
            nn.init.uniform_(self.output_bias, -(fan_in**-0.5), fan_in**-0.5)
        if self.released:
            nn.init.normal_(self.query_weight, std=self.in_channels**-0.5)
            nn.init.zeros_(self.key_weight)
            self.position_bias.copy_(self.fixed_position_scores())

    @property
    def kernel_size(self) -> tuple[int, int]:
        """(rows, cols) of the kernel."""
        return self.geometry.rows.kernel, self.geometry.cols.kernel

    @property
    def num_heads(self) -> int:
        """Number of heads: one for each offset, and one more for a released window that is larger than the kernel."""
        if self.learned_heads is not None:
            return self.learned_heads
        return self.geometry.offsets + int(self.released and self.geometry.positions > self.geometry.offsets)

    @torch.no_grad()
    def set_kernel(self, kernel: Float[Tensor, "out_channels group_channels kernel_rows kernel_cols"]) -> None:
        """Make the heads compute a convolution with this kernel, or the nearest that they can."""
        if self.learned_heads is not None:
            if not kernel.is_meta:
                self.set_fit(self.fit(kernel))
            return
        matrices = rearrange(kernel, "(g o) c y x -> (y x) g o c", g=self.groups)
        if self.released:  # W' with sum_h w_h[s] W'_h = W_s
            exact = matrices.double()
            weights = self.fixed_position_scores().to(exact).softmax(dim=-1)
            combinations = torch.linalg.pinv(weights)[self.geometry.targets(exact.device)]
            matrices = torch.einsum("sh,sgoc->hgoc", combinations, exact).to(matrices)
        self._set_matrices(matrices)

    def fit(self, kernel: Tensor) -> HeadFit:
        """Best heads for a kernel ``(out_channels, group_channels, rows, cols)``, by ``fit_heads``."""
        return fit_heads(self.kernel_in_window(kernel), self.geometry.coordinates(kernel.device), self.num_heads)

    def kernel_in_window(self, kernel: Tensor) -> Float[Tensor, "positions groups out channels"]:
        """Kernel ``(out_channels, group_channels, rows, cols)`` with zeros at the other positions of the window."""
        matrices = rearrange(kernel, "(g o) c y x -> (y x) g o c", g=self.groups).double()
        padded = matrices.new_zeros(self.geometry.positions, *matrices.shape[1:])
        padded[self.geometry.targets(kernel.device)] = matrices
        return padded

    @torch.no_grad()
    def window_kernel(self) -> Float[Tensor, "positions groups out channels"]:
        """Kernel that the heads compute, ``sum_h w_h[s] W_V^h W_O^h`` at each position s of the window."""
        matrices = rearrange(self.output_weight, "g o h r -> h g o r").double()
        if self.value_weight is not None:
            matrices = matrices @ self.value_weight.double()
        weights = self.fixed_position_scores().double().softmax(dim=-1)
        return torch.einsum("hs,hgoc->sgoc", weights, matrices)

    @torch.no_grad()
    def set_fit(self, fit: HeadFit) -> None:
        """Set centers, sharpness and matrices; matrices of a higher rank than ``head_dim`` are truncated."""
        self.centers.copy_(fit.centers)
        self.log_sharpness.copy_(fit.log_sharpness)
        self._set_matrices(fit.matrices.to(self.output_weight))

    def _set_matrices(self, matrices: Float[Tensor, "heads groups out channels"]) -> None:
        if self.value_weight is None:
            self.output_weight.copy_(rearrange(matrices, "heads g o c -> g o heads c"))
            return
        left, sizes, right = torch.linalg.svd(matrices, full_matrices=False)
        roots = sizes[..., : self.head_dim].sqrt()
        self.output_weight.copy_(rearrange(left[..., : self.head_dim] * roots[..., None, :], "h g o r -> g o h r"))
        self.value_weight.copy_(roots[..., None] * right[..., : self.head_dim, :])

    def fixed_position_scores(self) -> Float[Tensor, "heads positions"]:
        """Scores of the window: 0 at the offset of each head, ``-beta`` at the others; or those of learned centers."""
        weight = self.output_weight
        if self.learned_heads is not None:
            return position_scores(self.centers, self.log_sharpness, self.geometry.coordinates(weight.device))
        scores = weight.new_full((self.geometry.offsets, self.geometry.positions), -self.sharpness)
        scores.scatter_(1, self.geometry.targets(weight.device)[:, None], 0.0)
        return torch.cat([scores, scores.new_zeros(self.num_heads - len(scores), self.geometry.positions)])

    def forward(self, images: Images) -> Float[Tensor, "batch out_channels out_rows out_cols"]:
        if images.shape[1] != self.in_channels:
            raise ValueError(f"images must have in_channels={self.in_channels} channels, but have {images.shape[1]}")
        grid_size, attend = self.geometry.num_queries(images), self._attend_by_position
        numbers = self.in_channels * max(self.geometry.positions, self.geometry.offsets)
        if self.released:
            attend = self._attend_by_content
            numbers = self.num_heads * max(2 * self.geometry.positions, self.in_channels)
        output = _run_in_chunks(attend, images, numbers=numbers * math.prod(grid_size))
        output = output if self.output_bias is None else output + self.output_bias[:, None]
        return output.unflatten(-1, grid_size)

    @torch.no_grad()
    def attention_weights(self, images: Images) -> Float[Tensor, "batch heads queries tokens"]:
        """Weights of the tokens of these images; the queries are the positions of the output, row by row.

        The share of the padding is missing from the rows.
        """
        tokens = math.prod(images.shape[2:])
        # Gathered from one-hot images, an image for each token, the weights appear in their positions.
        one_hot = torch.eye(tokens, dtype=images.dtype, device=images.device).view(1, tokens, *images.shape[2:])
        if not self.released:
            return self._gather(one_hot).mT.expand(len(images), -1, -1, -1)
        _, weights = self._content_attention(images)
        padded = self.geometry.pad_for_windows(one_hot, self.geometry.num_queries(images))
        windows = rearrange(self.geometry.unfold_windows(padded), "1 t r c y x -> (r c) (y x) t")
        return torch.einsum("bqhs,qst->bhqt", weights, windows)

    def _attend_by_position(self, images: Tensor) -> Float[Tensor, "batch out_channels queries"]:
        """Output of heads with fixed positions, without bias: one matrix of weights for all images."""
        gathered = rearrange(self._gather(images), "b h (g c) n -> b h g c n", g=self.groups)
        if self.value_weight is not None:
            gathered = self.value_weight @ gathered
        return (self.output_weight.flatten(2) @ rearrange(gathered, "b h g c n -> b g (h c) n")).flatten(1, 2)

    def _gather(self, images: Tensor) -> Float[Tensor, "batch heads channels queries"]:
        """Mean of the tokens for every head and query."""
        if self.form == "window":
            padded = self.geometry.pad_for_windows(images, self.geometry.num_queries(images))
            windows = rearrange(self.geometry.unfold_windows(padded), "b c r s y x -> b (y x) (c r s)")
            weights = self.fixed_position_scores().softmax(dim=-1).to(images.dtype)
            return rearrange(weights @ windows, "b h (c n) -> b h c n", c=images.shape[1])
        sizes = zip(self.geometry, images.shape[2:], strict=True)
        rows, cols = (axis.quadratic_weights(size, self.sharpness, images) for axis, size in sizes)
        col_means = self.geometry.pad(images) @ rearrange(cols, "e j x -> x (e j)")
        means = rearrange(rows, "a i y -> (a i) y") @ col_means
        return rearrange(means, "b c (a i) (e j) -> b (a e) c (i j)", a=len(rows), e=len(cols))

    def _attend_by_content(self, images: Tensor) -> Float[Tensor, "batch out_channels queries"]:
        """Output of heads whose scores depend on the tokens, without bias."""
        gathered, _ = self._content_attention(images)
        gathered = gathered.unflatten(-1, (self.groups, -1))
        if self.value_weight is not None:
            gathered = torch.einsum("bnhgc,hgrc->bnhgr", gathered, self.value_weight)
        return torch.einsum("bnhgr,gohr->bgon", gathered, self.output_weight).flatten(1, 2)

    def _content_attention(
        self, images: Tensor
    ) -> tuple[Float[Tensor, "batch queries heads channels"], Float[Tensor, "batch queries heads positions"]]:
        """Mean of the tokens for every head and query, and the weights of the positions of the window.

        Reference: Ramachandran et al. 2019 (windows); Shazeer 2019 (keys and values shared between heads).
        Differs: a bias for each head and position; strides.
        """
        queries_of_image = self.geometry.num_queries(images)
        # The channels of a token are next to each other, which makes the copies of windows quick.
        padded = self.geometry.pad_for_windows(images, queries_of_image).permute(0, 2, 3, 1).contiguous()
        windows, keys = (
            rearrange(self.geometry.unfold_windows(tokens, first=1), "b r c d y x -> (b r c) (y x) d")
            for tokens in (padded, padded @ self.key_weight.mT)
        )
        centre = [(axis.window - 1) // 2 for axis in self.geometry]
        tokens = windows[:, centre[0] * self.geometry.cols.window + centre[1]]
        queries = (tokens @ self.query_weight.flatten(0, 1).mT).unflatten(1, (self.num_heads, KEY_DIM))
        bias = self.position_bias.to(queries.dtype).expand(queries.shape[0], -1, -1)
        weights = torch.baddbmm(bias, queries, keys.mT, alpha=KEY_DIM**-0.5).softmax(dim=-1)
        shape = (images.shape[0], math.prod(queries_of_image))  # len would fix the batch size of an exported program
        return torch.bmm(weights, windows).unflatten(0, shape), weights.unflatten(0, shape)


def _check_sharpness(sharpness: float | None, *, form: str, released: bool) -> float:
    """Sharpness, or the default of the form."""
    if sharpness is None:
        return RELEASED_SHARPNESS if released else SHARPNESS[form]
    if not sharpness > 0:
        raise ValueError(f"sharpness must be above 0, but is {sharpness}")
    if math.isinf(sharpness) and (released or form == "quadratic"):
        reason = "a one-hot softmax has no gradient" if released else "the quadratic code has no limit"
        raise ValueError(f"sharpness must be finite here ({reason}), but is {sharpness}")
    return sharpness


def _run_in_chunks(function: Callable[[Tensor], Tensor], images: Images, *, numbers: int) -> Tensor:
    """``function(images)`` in chunks of images, to save memory; the backward pass recomputes each chunk.

    ``numbers`` is the size of the largest tensor that the function makes for one image.
    """
    budget = CHUNK_NUMBERS.get(images.device.type, CHUNK_NUMBERS_ELSEWHERE)
    size = max(budget // numbers, 1)
    # An exported program has no fixed number of images.
    if torch.compiler.is_exporting() or len(images) <= size:
        return function(images)
    chunks = images.split(size)
    return torch.cat([checkpoint(function, part, use_reentrant=False, preserve_rng_state=False) for part in chunks])
