"""Trains a small language model with gated linear attention, twice: on attune, and on a plain loop.

    python train.py --steps 300 --plot loss.png

The text is this project's own documentation, byte by byte. Both models start from the same weights and
see the same batches, so that their losses may differ by rounding alone. The model that attune trained
then writes a few lines, one token at a time, with recurrent_decode: prompt and generation share a state
of fixed size, and no token is looked at twice.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import attune_kernels.torch as at

HEADS, KEYS, WIDTH, LAYERS = 4, 16, 64, 2
GATE_TEMPERATURE = 16.0  # as in arXiv:2312.06635: gates close to 1 remember long


def plain_attention(q, k, v, gk):
    """The recurrence as one writes it down: a loop over tokens, and torch's autograd."""
    state = torch.zeros(*q.shape[:1], *q.shape[2:], v.shape[-1], device=q.device)
    outputs = []
    for t in range(q.shape[1]):
        state = state * gk[:, t].exp().unsqueeze(-1) + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
        outputs.append((q[:, t].unsqueeze(-1) * state).sum(-2))
    return torch.stack(outputs, 1) * q.shape[-1] ** -0.5


def attune_attention(q, k, v, gk):
    return at.gated_linear_attention(q, k, v, gk)[0]


class Layer(nn.Module):
    """Gated linear attention and a two-layer perceptron, each behind a norm and beside a shortcut."""

    def __init__(self):
        super().__init__()
        self.norm, self.projections = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * HEADS * KEYS)
        self.output = nn.Linear(HEADS * KEYS, WIDTH)
        self.perceptron = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(),
                                        nn.Linear(4 * WIDTH, WIDTH))

    def operands(self, x):
        """q, k, v and the log decay of each key channel: [..., H, K] each."""
        q, k, v, gate = self.projections(self.norm(x)).unflatten(-1, (4, HEADS, KEYS)).unbind(-3)
        return q, functional.normalize(k, dim=-1), v, functional.logsigmoid(gate) / GATE_TEMPERATURE

    def finish(self, x, o):
        x = x + self.output(o.flatten(-2))
        return x + self.perceptron(x)

    def forward(self, x, attention):
        return self.finish(x, attention(*self.operands(x)))

    def step(self, x, state):
        """One token of each sequence, [B, WIDTH]; state [B, H, K, K] is updated in place."""
        q, k, v, gk = self.operands(x)
        return self.finish(x, at.recurrent_decode(q, k, v, state, gk=gk))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256))

    def forward(self, tokens, attention):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, attention)
        return self.head(x)

    @torch.no_grad()
    def generate(self, prompt, length, temperature):
        """Continues a prompt (bytes): both go through the same one-token step."""
        states = torch.zeros(LAYERS, 1, HEADS, KEYS, KEYS, device=self.embedding.weight.device)
        written = list(prompt)
        for i in range(len(prompt) + length - 1):
            x = self.embedding(torch.tensor(written[i:i + 1], device=states.device))
            for layer, state in zip(self.layers, states):
                x = layer.step(x, state)
            if i + 1 == len(written):
                written.append(int(torch.multinomial((self.head(x) / temperature).softmax(-1), 1)))
        return bytes(written).decode("utf-8", "replace")


def documentation():
    root = Path(__file__).resolve().parents[2]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return torch.frombuffer(bytearray(b"\n".join(page.read_bytes() for page in pages)), dtype=torch.uint8).long()


def train(attention, text, options):
    """A model, its losses, and the tokens a second that it was trained with."""
    torch.manual_seed(options.seed)
    model = Model().to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    losses = []
    start = time.perf_counter()
    for _ in range(options.steps):
        begins = torch.randint(len(text) - options.tokens - 1, (options.batch,)).tolist()
        batch = torch.stack([text[begin:begin + options.tokens + 1] for begin in begins]).to(options.device)
        logits = model(batch[:, :-1], attention)
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return model, losses, options.steps * options.batch * options.tokens / (time.perf_counter() - start)


def plot(path, losses):
    try:
        from matplotlib import pyplot
    except ImportError:
        print(f"no plot: matplotlib is not installed ({path})")
        return
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for (name, values), style in zip(losses.items(), ("-", "--")):
        axes.plot(values, style, label=name)
    axes.set(xlabel="step", ylabel="loss, nats a byte")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: at least 1 is expected")
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=positive, default=300)
    parser.add_argument("--batch", type=positive, default=8)
    parser.add_argument("--tokens", type=positive, default=128, help="of a sequence")
    parser.add_argument("--rate", type=float, default=3e-3, help="the optimizer's learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--generate", type=int, default=200, help="bytes to write in the end")
    parser.add_argument("--plot", help="a file for the loss curves")
    options = parser.parse_args()

    text = documentation()
    losses = {}
    models = {}
    for name, attention in (("attune", attune_attention), ("plain recurrence", plain_attention)):
        models[name], losses[name], rate = train(attention, text, options)
        print(f"{name}: loss {losses[name][0]:.3f} -> {losses[name][-1]:.3f}, {rate:,.0f} tokens a second")
    apart = max(abs(a - b) for a, b in zip(*losses.values()))
    print(f"the two losses are never more than {apart:.2g} apart")
    if options.plot:
        plot(options.plot, losses)
    print(models["attune"].generate(b"attune ", options.generate, 0.7))


if __name__ == "__main__":
    main()
