"""The model of train.py in JAX and Flax: trained on attune and on a plain scan, then it writes by decoding.

    pip install flax
    python train_flax.py --steps 300

Both models start from the same weights and see the same batches, so that their losses may differ by
rounding alone. A training step is one jitted program; in generation the states are donated, and so updated
where they lie.
"""

import argparse
import functools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy
import optax
from flax import nnx

import attune_kernels.jax as aj

HEADS, KEYS, WIDTH, LAYERS = 4, 16, 64, 2
GATE_TEMPERATURE = 16.0  # as in arXiv:2312.06635: gates close to 1 remember long


def plain_attention(q, k, v, gk):
    """The recurrence as one writes it down: a scan over tokens, and JAX's gradient of it."""

    def token(state, row):
        q, k, v, gk = row
        state = state * jnp.exp(gk)[..., None] + k[..., None] * v[..., None, :]
        return state, (q[..., None] * state).sum(-2)

    start = jnp.zeros((q.shape[0], HEADS, KEYS, v.shape[-1]))
    _, o = jax.lax.scan(token, start, tuple(x.swapaxes(0, 1) for x in (q, k, v, gk)))
    return o.swapaxes(0, 1) * KEYS ** -0.5


def attune_attention(q, k, v, gk):
    return aj.gated_linear_attention(q, k, v, gk)[0]


class Layer(nnx.Module):
    """Gated linear attention and a two-layer perceptron, each behind a norm and beside a shortcut."""

    def __init__(self, rngs):
        self.norm, self.second_norm = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.LayerNorm(WIDTH, rngs=rngs)
        self.projections = nnx.Linear(WIDTH, 4 * HEADS * KEYS, rngs=rngs)
        self.output = nnx.Linear(HEADS * KEYS, WIDTH, rngs=rngs)
        self.wide, self.narrow = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs), nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def operands(self, x):
        """q, k, v and the log decay of each key channel: [..., H, K] each."""
        rows = self.projections(self.norm(x)).reshape(*x.shape[:-1], 4, HEADS, KEYS)
        q, k, v, gate = (rows[..., i, :, :] for i in range(4))
        return q, k / (jnp.linalg.norm(k, axis=-1, keepdims=True) + 1e-6), v, jax.nn.log_sigmoid(gate) / GATE_TEMPERATURE

    def finish(self, x, o):
        x = x + self.output(o.reshape(*x.shape[:-1], HEADS * KEYS))
        return x + self.narrow(jax.nn.gelu(self.wide(self.second_norm(x))))

    def __call__(self, x, attention):
        return self.finish(x, attention(*self.operands(x)))

    def step(self, x, state):
        """One token of each sequence, [B, WIDTH], and the state behind it, [B, H, K, K]."""
        q, k, v, gk = self.operands(x)
        o, state = aj.recurrent_decode(q, k, v, state, gk=gk)
        return self.finish(x, o), state


class Model(nnx.Module):
    def __init__(self, rngs):
        self.embedding = nnx.Embed(256, WIDTH, rngs=rngs)
        self.layers = nnx.List([Layer(rngs) for _ in range(LAYERS)])
        self.norm, self.head = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.Linear(WIDTH, 256, rngs=rngs)

    def __call__(self, tokens, attention):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, attention)
        return self.head(self.norm(x))

    def step(self, token, states):
        x = self.embedding(token)
        after = []
        for layer, state in zip(self.layers, states):
            x, state = layer.step(x, state)
            after.append(state)
        return self.head(self.norm(x)), after


def documentation():
    root = Path(__file__).resolve().parents[2]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return numpy.frombuffer(b"\n".join(page.read_bytes() for page in pages), numpy.uint8)


def train(attention, text, options):
    """A model, its losses, and the tokens a second that it was trained with, compilation left out."""
    model = Model(nnx.Rngs(options.seed))
    optimizer = nnx.Optimizer(model, optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(options.rate)), wrt=nnx.Param)

    def loss_of(model, batch):
        logits = model(batch[:, :-1], attention)
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

    @nnx.jit
    def step(model, optimizer, batch):
        loss, gradients = nnx.value_and_grad(loss_of)(model, batch)
        optimizer.update(model, gradients)
        return loss

    random = numpy.random.default_rng(options.seed)
    losses, start = [], time.perf_counter()
    for i in range(options.steps):
        begins = random.integers(len(text) - options.tokens - 1, size=options.batch)
        batch = numpy.stack([text[begin:begin + options.tokens + 1] for begin in begins]).astype(numpy.int32)
        losses.append(float(step(model, optimizer, batch)))
        if i == 0:
            start = time.perf_counter()
    seconds = time.perf_counter() - start
    return model, losses, (options.steps - 1) * options.batch * options.tokens / seconds


def generate(model, prompt, length, temperature, seed):
    """Continues a prompt (bytes): both go through the same one-token step."""
    definition, weights = nnx.split(model)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(states, token, weights, key):
        logits, states = nnx.merge(definition, weights).step(token, states)
        return states, jax.random.categorical(key, logits / temperature)

    states = [jnp.zeros((1, HEADS, KEYS, KEYS)) for _ in range(LAYERS)]
    written = list(prompt)
    for i, key in enumerate(jax.random.split(jax.random.key(seed), len(prompt) + length - 1)):
        states, following = step(states, jnp.asarray(written[i:i + 1]), weights, key)
        if i + 1 == len(written):
            written.append(int(following[0]))
    return bytes(written).decode("utf-8", "replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128, help="of a sequence")
    parser.add_argument("--rate", type=float, default=3e-3, help="the optimizer's learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--generate", type=int, default=200, help="bytes to write in the end")
    options = parser.parse_args()

    text = documentation()
    losses, models = {}, {}
    for name, attention in (("attune", attune_attention), ("plain scan", plain_attention)):
        models[name], losses[name], rate = train(attention, text, options)
        print(f"{name}: loss {losses[name][0]:.3f} -> {losses[name][-1]:.3f}, {rate:,.0f} tokens a second")
    apart = max(abs(a - b) for a, b in zip(*losses.values()))
    print(f"the two losses are never more than {apart:.2g} apart")
    print(generate(models["attune"], b"attune ", options.generate, 0.7, options.seed))


if __name__ == "__main__":
    main()
