"""Small models with the structure of models that other people wrote: parameters are used in every way they use them."""

import math

import torch
import torch.nn.functional as F
from gradient_models import images, labels
from torch import nn

WIDTH, CODES = 8, 11


class Conv1D(nn.Module):
    """The linear map of GPT-2: its matrix is (in, out), and positions are joined to records."""

    def __init__(self, out, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width, out) / 4), nn.Parameter(torch.randn(out) / 4)

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class T5LayerNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(1 + torch.randn(width) / 4)

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class GemmaNorm(T5LayerNorm):
    """Its factor is 1 plus the parameter."""

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + self.weight.type_as(x))


class LayerNorm2d(nn.LayerNorm):
    """The norm of ConvNeXt, over the channels of an image."""

    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps).permute(0, 3, 1, 2)


class Attention(nn.Module):
    """Attention with a mask over padding; the mask is left out if there is no padding."""

    def __init__(self, causal=False, linear=lambda: Conv1D(3 * WIDTH, WIDTH), bias=None):
        super().__init__()
        self.qkv, self.causal, self.bias = linear(), causal, bias

    def forward(self, x, mask=None):
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        seen = None
        if mask is not None and not mask.all():
            seen = mask[:, None, None, :].bool().expand(-1, 1, x.shape[1], -1)
        if seen is not None and self.causal:
            seen = seen & torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        if self.bias is not None:
            seen = self.bias(x.shape[1])
        found = F.scaled_dot_product_attention(q, k, v, seen, is_causal=self.causal and seen is None)
        return found.transpose(1, 2).flatten(2)


class RelativeBias(nn.Module):
    """A number for each distance of two positions, as T5 and Swin have."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 2)

    def forward(self, length):
        places = torch.arange(length)
        return self.table((places[:, None] - places[None]).clamp(-4, 4) + 4).permute(2, 0, 1)[None]


class Bert(nn.Module):
    """Embeddings of words, positions of batch 1, and types that are a buffer expanded to the records."""

    def __init__(self, classes=3):
        super().__init__()
        self.words, self.places, self.types = (
            nn.Embedding(CODES, WIDTH, 0),
            nn.Embedding(16, WIDTH),
            nn.Embedding(2, WIDTH),
        )
        self.register_buffer("place_ids", torch.arange(16)[None])
        self.register_buffer("type_ids", torch.zeros(1, 16, dtype=torch.long))
        self.norm, self.attention, self.out = nn.LayerNorm(WIDTH), Attention(), nn.Linear(WIDTH, classes)

    def forward(self, codes, mask):
        n, length = codes.shape
        x = self.words(codes) + self.types(self.type_ids[:, :length].expand(n, length))
        x = self.norm(x + self.places(self.place_ids[:, :length]))
        return self.out((x + self.attention(x, mask))[:, 0])


class Gpt(nn.Module):
    """A language model whose output matrix is its table of words."""

    def __init__(self, positions="batch of one"):
        super().__init__()
        self.words, self.places = nn.Embedding(CODES, WIDTH), nn.Embedding(16, WIDTH)
        self.norm, self.attention, self.positions = nn.LayerNorm(WIDTH), Attention(causal=True), positions
        self.head = nn.Linear(WIDTH, CODES, bias=False)
        self.head.weight = self.words.weight

    def forward(self, codes, mask):
        places = torch.arange(codes.shape[1])
        x = self.words(codes) + self.places(places[None] if self.positions == "batch of one" else places)
        return self.head(x + self.attention(self.norm(x), mask))


class T5(nn.Module):
    def __init__(self, norm=T5LayerNorm):
        super().__init__()
        self.words, self.norm = nn.Embedding(CODES, WIDTH), norm(WIDTH)
        linear = lambda: nn.Linear(WIDTH, 3 * WIDTH, bias=False)  # noqa: E731
        self.attention, self.out = Attention(linear=linear, bias=RelativeBias()), nn.Linear(WIDTH, 3)

    def forward(self, codes, mask):
        x = self.words(codes)
        return self.out((x + self.attention(self.norm(x))).mean(1))


class Vit(nn.Module):
    """Patches, a class token that is expanded, positions that are a parameter, and a layer scale."""

    def __init__(self, how="expand"):
        super().__init__()
        self.patches, self.how = nn.Conv2d(3, WIDTH, 4, 4), how
        self.token, self.places = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 9, WIDTH))
        self.scale, self.norm = nn.Parameter(torch.rand(WIDTH)), nn.LayerNorm(WIDTH)
        self.attention, self.out = nn.MultiheadAttention(WIDTH, 2, batch_first=True), nn.Linear(WIDTH, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        n, length, _ = x.shape
        token = self.token.expand(n, -1, -1) if self.how == "expand" else self.token.repeat(n, 1, 1)
        x = torch.cat([token, x], 1) + self.places[:, : length + 1]
        y = self.norm(x)
        return self.out((x + self.scale * self.attention(y, y, y, need_weights=False)[0])[:, 0])


class ConvNext(nn.Module):
    """Depthwise convolution, a norm over channels, a layer scale on channels, a transposed convolution."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, WIDTH, 2, 2), LayerNorm2d(WIDTH)
        self.deep, self.scale = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH), nn.Parameter(torch.rand(WIDTH))
        self.up = nn.ConvTranspose2d(WIDTH, 4, 3, 2, 1, output_padding=1, groups=2)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        x = self.norm(self.stem(x))
        x = x + self.deep(x).mul(self.scale.reshape(1, -1, 1, 1))
        return self.out(self.up(x).tanh().mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.words, self.layer = nn.Embedding(CODES, 4), layer
        self.out = nn.Linear(layer.hidden_size * (1 + layer.bidirectional), 3)

    def forward(self, codes):
        x = self.words(codes)
        if self.layer.batch_first:
            return self.out(self.layer(x)[0][:, -1])
        return self.out(self.layer(x.transpose(0, 1))[0][-1])


class Lora(nn.Module):
    """A frozen linear map in bfloat16, with a trained correction of low rank in float32."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).to(dtype).requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, 3)

    def forward(self, x):
        x = self.base(x.to(self.base.weight.dtype)).to(x.dtype) + self.up(self.down(x))
        return self.out(torch.tanh(x).mean(1))


def sentences(length=6, n=5):
    codes = torch.randint(1, CODES, (n, length), generator=torch.Generator().manual_seed(3))
    ends = torch.randint(1, length + 1, (n, 1), generator=torch.Generator().manual_seed(4))
    mask = (torch.arange(length)[None] < ends).long()
    return (codes * mask, mask), labels(3, n)


def _decoder(layers=1):
    layer = nn.TransformerDecoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.out = layer, nn.Linear(WIDTH, 3)

        def forward(self, x, memory):
            return self.out(self.layer(x, memory).mean(1))

    return Decoder()


def _encoder(**options):
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, **{"batch_first": True, **options})
    return nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(), nn.Linear(48, 3))


def _pair(length=6):
    first, targets = images(length, WIDTH)
    return (first, first.flip(0)[:, : length - 2].contiguous()), targets


ARCHITECTURES = {
    "BERT with a mask": lambda: (Bert(), *sentences()),
    "BERT, as many words as records": lambda: (Bert(), *sentences(5)),
    "GPT-2, tied, with a mask": lambda: (Gpt(), *sentences()),
    "GPT-2, positions without a batch": lambda: (Gpt("plain"), *sentences()),
    "GPT-2, as many positions as records": lambda: (Gpt("plain"), *sentences(5)),
    "T5": lambda: (T5(), *sentences()),
    "T5, as many words as records": lambda: (T5(), *sentences(5)),
    "Gemma's norm": lambda: (T5(GemmaNorm), *sentences()),
    "ViT": lambda: (Vit(), *images(3, 8, 8)),
    "ViT with repeat": lambda: (Vit("repeat"), *images(3, 8, 8)),
    "ViT, as many tokens as records": lambda: (Vit(), *images(3, 8, 8)),
    "ConvNeXt": lambda: (ConvNext(), *images(3, 8, 8)),
    "TransformerEncoder": lambda: (_encoder(), *images(6, WIDTH)),
    "TransformerEncoder, norm first": lambda: (_encoder(norm_first=True), *images(6, WIDTH)),
    "TransformerDecoder": lambda: (_decoder(), *_pair()),
    "LSTM": lambda: (Recurrent(nn.LSTM(4, 6, batch_first=True)), sentences()[0][0], sentences()[1]),
    "LSTM, two layers, both ways": lambda: (
        Recurrent(nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True)),
        sentences()[0][0],
        sentences()[1],
    ),
    "GRU": lambda: (Recurrent(nn.GRU(4, 6, batch_first=True)), sentences()[0][0], sentences()[1]),
    "RNN, time first": lambda: (Recurrent(nn.RNN(4, 6, bias=False)), sentences()[0][0], sentences()[1]),
    "weight norm": lambda: (
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 3)),
        *images(4),
    ),
    "LoRA": lambda: (Lora(), *images(6, WIDTH)),
}
"""Models with inputs and targets of five records."""


def architecture(name):
    """Return a model with fixed parameters, inputs, targets and its loss."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, inputs, targets = ARCHITECTURES[name]()
    return model, inputs, targets, next_word if name.startswith("GPT") else classes


def classes(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


def next_word(outputs, targets):
    """A loss of all positions of a language model; the same word is never predicted by all records."""
    words = (targets[:, None] * 3 + torch.arange(outputs.shape[1])) % CODES
    return F.cross_entropy(outputs.transpose(1, 2), words, reduction="none").sum(1) / math.sqrt(outputs.shape[1])
