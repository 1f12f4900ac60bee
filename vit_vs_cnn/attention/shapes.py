"""The shapes of tensors, by the names that signatures give them."""

from collections.abc import Sequence
from typing import TypeAlias

from jaxtyping import Bool, Float
from torch import Tensor

#: (rows, cols), or one number for both.
Sizes: TypeAlias = int | Sequence[int]

Images = Float[Tensor, "batch channels rows cols"]
Tokens = Float[Tensor, "batch tokens embed_dim"]
Logits = Float[Tensor, "batch classes"]

Queries = Float[Tensor, "batch heads queries head_dim"]
Keys = Float[Tensor, "batch heads keys head_dim"]
Values = Float[Tensor, "batch heads keys value_head_dim"]
Gathered = Float[Tensor, "batch heads queries value_head_dim"]
Weights = Float[Tensor, "batch heads queries keys"]
#: What attention gives: the means of the values, and with ``return_weights`` the weights.
Attended: TypeAlias = Gathered | tuple[Gathered, Weights]

#: The same where each token of a grid is a query and a key.
Heads = Float[Tensor, "batch heads tokens head_dim"]
HeadValues = Float[Tensor, "batch heads tokens value_head_dim"]
TokenWeights = Float[Tensor, "batch heads tokens tokens"]
AttendedHeads: TypeAlias = HeadValues | tuple[HeadValues, TokenWeights]

#: True where a query may attend, of any shape that broadcasts.
AnyMask = Bool[Tensor, "..."]
#: What attends to what: broadcast against (batch, heads, queries, keys) from the right.
Mask: TypeAlias = (
    Bool[Tensor, "#batch #heads #queries #keys"]
    | Bool[Tensor, "#heads #queries #keys"]
    | Bool[Tensor, "#queries #keys"]
)
#: What is added to the scores: broadcast like a mask.
Bias: TypeAlias = (
    Float[Tensor, "#batch #heads #queries #keys"]
    | Float[Tensor, "#heads #queries #keys"]
    | Float[Tensor, "#queries #keys"]
)
