# %% [markdown]
# # 4b. Encoder and decoder
#
# **What you will learn**
#
# - How an encoder and a decoder turn one sequence into another.
# - How the causal mask hides the future.
# - What attention without positions is good for.
#
# **You need** [notebook 4a](04a_block.ipynb): the block.
#
# **From the package:** `Transformer` of `vit_vs_cnn.models`, `MultiHeadAttention` of `vit_vs_cnn.attention`.

# %%
import torch
import torch.nn.functional as F
from torch import nn

from vit_vs_cnn.attention import MultiHeadAttention
from vit_vs_cnn.models import Transformer
from vit_vs_cnn.models.encoder import EncoderBlock, Mlp
from vit_vs_cnn.reporting.figures.heatmaps import attention_heatmaps

torch.set_num_threads(1)  # the fastest for layers as small as these

# %% tags=["parameters"]
STEPS = 300  # of the model that reverses sequences
SET_STEPS = 200  # of each model that finds the odd one out

# %% [markdown]
# ## Three attentions
#
# ![Transformer with encoder and decoder, and the three places with attention](../docs/static/drawings/encoder_decoder.svg)
#
# The encoder reads the source: each token attends to all others. The decoder writes the target. Its tokens attend to
# what was written before (causal self-attention) and to the encoder's output (cross-attention: queries from the
# decoder, keys and values from the encoder). There is no bottleneck: each step of the decoder reads all encoded tokens.
#
# Many models have only one half: the encoder (BERT and the ViT), or the decoder without cross-attention (GPT). T5 has
# both.
#
# ## A task: reverse a sequence
#
# The source is eight digits. The target is the same digits in reverse order, and a stop symbol. The decoder writes
# one symbol at a time, from a start symbol and the symbols that it has already written. In training all positions are
# computed at once: the decoder reads the *correct* digits so far (*teacher forcing*), and a causal mask hides the
# later ones.

# %%
START, STOP = 10, 11


def batch(size, generator, length=8):
    source = torch.randint(10, (size, length), generator=generator)
    target = F.pad(source.flip(1), (0, 1), value=STOP)
    decoder_input = F.pad(target[:, :-1], (1, 0), value=START)
    return source, decoder_input, target


source, decoder_input, target = batch(1, torch.Generator().manual_seed(1))
print("source ", source[0].tolist())
print("decoder reads  ", decoder_input[0].tolist())
print("decoder writes ", target[0].tolist())


# %%
def train(model, steps, rate, warm_up, size=64):
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / warm_up))
    losses = []
    for step in range(steps):
        source, decoder_input, target = batch(size, generator)
        loss = F.cross_entropy(model(source, decoder_input).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.2f}")
    return losses


# %% [markdown]
# The model has one encoder block and one decoder block, both with pre-norm. It adds sinusoidal positions to the tokens
# of source and target (`model.positions`). As in the first Transformer, the embeddings are multiplied by $\sqrt D$
# before: they start with the standard deviation $1/\sqrt D$, and the product is about as large as the positions.

# %% tags=["numbers-vary"]
torch.manual_seed(0)
model = Transformer(10, 12, embed_dim=64, num_heads=4, encoder_depth=1, decoder_depth=1, mlp_ratio=2.0)
losses = train(model, STEPS, rate=4e-3, warm_up=30)

source, decoder_input, target = batch(500, torch.Generator().manual_seed(2))
answers = model.decode_greedily(source, start_token=START, stop_token=STOP, max_tokens=9)
right = (F.pad(answers, (0, 9 - answers.shape[1]), value=STOP) == target).all(dim=1)
print("parameters:", sum(parameter.numel() for parameter in model.parameters()))
print(f"{right.float().mean():.1%} of 500 new sequences are reversed without error")
print(source[0].tolist(), "->", answers[0].tolist())

# %% [markdown]
# We count a sequence only if all of its symbols are right. A sentence has many right translations, so a translation is
# scored by the sequences of words that it shares with a reference (BLEU).
#
# ## Step by step
#
# In use there is no target to read. The decoder starts with the start symbol and reads what it has written itself. We
# print each step for one sequence.

# %% tags=["numbers-vary"]
written = [START]
with torch.no_grad():
    while written[-1] != STOP and len(written) < 10:
        logits = model(source[:1], torch.tensor([written]))
        written.append(logits[0, -1].argmax().item())
        print(f"{written[:-1]} -> {written[-1]}")

# %% [markdown]
# Each step takes the most probable symbol: this is *greedy* decoding. *Beam search* keeps several beginnings, and
# chooses the most probable whole sequence among them. Our loop computes all earlier tokens again in each step. With a
# causal mask their keys and values do not change, so they can be stored (*KV cache*).
#
# Here one wrong digit would be read by all later steps. In training the model never reads its own errors, only correct
# digits. This difference is called *exposure bias*.
#
# ## The three attention maps of the model
#
# The encoder attends to the source, the decoder to what it has written, and the decoder to the encoder
# (*cross-attention*). The maps are means over the 500 sequences. Rows are queries. In the last row of maps, queries
# are positions of the target and keys are positions of the source.

# %% tags=["numbers-vary"]
with torch.no_grad():
    _, weights = model(source, decoder_input, return_weights=True)
attention_heatmaps(
    [list(layers[0].mean(dim=0)) for layers in weights],
    row_labels=["encoder", "decoder", "decoder to encoder"],
    column_labels=[f"head {head}" for head in range(1, 5)],
    cell_size=1.6,
)

# %% [markdown]
# To write position $t$ of the target, the decoder must read position $7 - t$ of the source. In the last row of maps
# this is the diagonal from the upper right to the lower left. We print the share of the cross-attention on this
# diagonal for each head. Uniform attention would give one eighth:

# %% tags=["numbers-vary"]
mirrored = weights.cross[0][:, :, :8].flip(-1).diagonal(dim1=-2, dim2=-1).mean(dim=(0, 2))
print([f"{share:.0%}" for share in mirrored.tolist()])

# %% [markdown]
# ## The causal mask hides the future
#
# Does the causal mask work? Change one symbol that the decoder reads, and see which outputs change. Row: position of
# the output. Column: position of the changed symbol.

# %% tags=["numbers-vary"]
moved = torch.zeros(9, 9)
with torch.no_grad():
    before = model(source[:20], decoder_input[:20])
    for place in range(9):
        changed = decoder_input[:20].clone()
        changed[:, place] = (changed[:, place] + 1) % 10
        moved[:, place] = (model(source[:20], changed) - before).abs().amax(dim=(0, 2))

print("largest change above the diagonal:", moved.triu(1).max().item())
assert moved.triu(1).max() < 1e-4 < moved.diagonal().min()
attention_heatmaps([[moved]], axis_labels=("output", "symbol changed"), bar_label="change of logits", cell_size=2.4)

# %% [markdown]
# All changes are on and below the diagonal: an output depends on the symbol that is read at its position and on earlier
# ones. So one pass computes the loss of all positions in training, as if each had been predicted alone.
#
# ## Without positions: the odd one out of a set
#
# Some data have no order, and for them permutation equivariance is exactly right. Each set here has ten vectors: nine
# lie around one centre, one around another. Both centres are new in every set. So a vector alone does not show whether it
# is odd: one has to compare. We train one block, and an MLP that scores each vector alone.


# %%
def sets(count, generator):
    centres = torch.randn(2, count, 1, 8, generator=generator)
    odd = torch.randint(10, (count,), generator=generator)
    is_odd = (torch.arange(10) == odd[:, None])[..., None]
    return torch.where(is_odd, centres[1], centres[0]) + 0.3 * torch.randn(count, 10, 8, generator=generator), odd


# %% tags=["numbers-vary"]
torch.manual_seed(0)
finders = {
    "with attention": nn.Sequential(
        nn.Linear(8, 32), EncoderBlock(MultiHeadAttention(32, num_heads=4), mlp_ratio=4.0), nn.Linear(32, 1)
    ),
    "each alone": nn.Sequential(nn.Linear(8, 32), Mlp(32, 128), nn.Linear(32, 1)),
}
for name, finder in finders.items():
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(finder.parameters(), lr=3e-3)
    for _ in range(SET_STEPS):
        vectors, odd = sets(64, generator)
        optimizer.zero_grad()
        F.cross_entropy(finder(vectors)[..., 0], odd).backward()
        optimizer.step()
    vectors, odd = sets(1000, generator)
    accuracy = (finder(vectors)[..., 0].argmax(dim=1) == odd).float().mean().item()
    print(f"{name:15} finds {accuracy:.0%} of the odd vectors; guessing finds 10%")

# %%
order = torch.randperm(10, generator=generator)
finder = finders["with attention"]
assert torch.allclose(finder(vectors[:, order]), finder(vectors)[:, order], atol=1e-4)

# %% [markdown]
# Attention compares. The MLP scores each vector without the others, yet finds more than by guessing. The nine vectors are
# near each other, so they get similar scores. If the odd vector's score is above all of these, it is found. But it is
# as often below another's score as above it, so on average the MLP cannot find more than half.
#
# The last cell shows the equivariance: permuting a set permutes the scores in the same way. So the same vector is found
# in every order.
#
# ## In short
#
# - The encoder attends to the source, the decoder to what it has written, and cross-attention connects them.
# - Teacher forcing and a causal mask train all positions in one pass. Decoding writes one symbol at a time.
# - Trained cross-attention shows which source token each output reads: here the mirrored one.
# - Without positions, attention is equivariant to permutations: right for sets, wrong for sequences.
#
# ## Exercises
#
# **1. Without positions.** Set `positions` of a new model to zero and train it. Can it reverse?

# %% tags=["solution", "hide-cell", "numbers-vary"]
torch.manual_seed(0)
blind = Transformer(10, 12, embed_dim=64, num_heads=4, encoder_depth=1, decoder_depth=1, mlp_ratio=2.0)
blind.positions.zero_()
blind_losses = train(blind, STEPS, rate=4e-3, warm_up=30)
print(f"loss with positions {losses[-1]:.2f}, without {blind_losses[-1]:.2f}")
with torch.no_grad():
    assert torch.allclose(blind(source.flip(1), decoder_input), blind(source, decoder_input), atol=1e-3)
# Without positions the source is a bag of digits: its order cannot be known. The best loss with this bag is 0.98: the
# entropy of the digits that remain to be written, averaged over eight digits and a stop symbol, which is certain. (In
# notebook 4a none is written yet: 1.65.) Here the loss is higher.

# %% [markdown]
# **2. Longer sequences.** The model was trained on sequences of 8 digits. How many sequences of 9 digits does it
# reverse?

# %% tags=["solution", "hide-cell", "numbers-vary"]
long, _, longer_target = batch(500, torch.Generator().manual_seed(3), length=9)
written_long = model.decode_greedily(long, start_token=START, stop_token=STOP, max_tokens=10)
written_long = F.pad(written_long, (0, 10 - written_long.shape[1]), value=STOP)
print(f"{(written_long == longer_target).all(dim=1).float().mean():.1%} of the longer sequences")
assert not (written_long == longer_target).all(), "it errs on longer sequences"
# "Position t reads position 7 - t" is wrong for 9 digits, and the ninth position was never trained. This number does not show
# which of the two matters. To fix both, train on several lengths, with valid_length_mask.

# %% [markdown]
# **3. The order of a set.** The causal mask of the decoder breaks permutation equivariance. Does an encoder block have it?
# Check with the block of the finder above.

# %% tags=["solution", "hide-cell"]
block = finder[1]
x, order = torch.randn(2, 10, 32), torch.randperm(10)
assert torch.allclose(block(x[:, order]), block(x)[:, order], atol=1e-4)
# Yes: norms and MLP work on each token alone, and attention without a mask is equivariant.

# %% [markdown]
# **Open questions** (without a solution)
#
# - **Parallel training.** Why can a Transformer be trained on all positions at once, but must write one symbol
#   after the other? Could a recurrent network be trained in parallel in the same way?
# - **Less exposure bias.** Propose a way of training that lets the decoder read some of its own output. What
#   does it cost?
#
# **Next:** [long sequences](04c_long_sequences.ipynb), for which $n^2$ scores are too many.
