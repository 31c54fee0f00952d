"""One step of training for architectures of other libraries: plain SGD, this library, Opacus' hooks and ghost clipping.

Timed, for every contender: from a batch in hand to the end of the optimizer's step, in one thread, as time of the
processor (medians of interleaved rounds). Ours computes losses, norms, importance weights (a linear tail), clip
factors and the weighted gradient with the engine that `engine_for` chooses, without noise, as plain SGD has none.
Opacus adds its noise, and trains what its `ModuleValidator.fix` makes of a model. A contender that cannot train a
model is shown with its error.

Needs the extra `peers` (transformers, peft). Batches of 64 records of 64 tokens, 4 layers of width 256, as in issue 22;
`--small` takes 16 records, for a quick look. Further arguments name the architectures to run.
"""

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.timing import medians
from inosgm import Descending, LinearTail, ScaleClipped
from inosgm.mechanism.mechanism import clipped_ordered_sum
from inosgm.training.gradients import engine_for

LENGTH, WIDTH, LAYERS, CODES, CLASSES = 64, 256, 4, 5000, 3
ROUNDS = 5

Model = tuple[nn.Module, Any, Tensor, Callable[[Any, Tensor], Tensor]]
"""A model, inputs, targets, and a loss that gives one number per record."""


def per_class(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of each record of a classifier."""
    return F.cross_entropy(outputs, targets, reduction="none")


def next_word(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of the words of each record of a language model."""
    return F.cross_entropy(outputs[:, :-1].transpose(1, 2), targets[:, 1:], reduction="none").mean(1)


class Logits(nn.Module):
    """A model of transformers that returns its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, first: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits of token ids with a mask, or of images."""
        logits: Tensor = self.model(first, **({} if mask is None else {"attention_mask": mask})).logits
        return logits


class LastState(nn.Module):
    """Words, a recurrent layer, classes of the last state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.words, self.layer, self.out = nn.Embedding(CODES, WIDTH), layer, nn.Linear(WIDTH, CLASSES)

    def forward(self, codes: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.out(self.layer(self.words(codes))[0][:, -1])
        return logits


class Block(nn.Module):
    """The residual block of ResNet-18, with GroupNorm."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(32, after) for _ in range(2)])
        self.skip = nn.Sequential()
        if stride != 1:
            self.skip = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.GroupNorm(32, after))

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of the block."""
        y = self.norms[1](self.second(torch.relu(self.norms[0](self.first(x)))))
        return torch.relu(y + self.skip(x))


def _sentences(batch: int) -> tuple[Tensor, Tensor]:
    codes = torch.randint(1, CODES, (batch, LENGTH))
    mask = (torch.arange(LENGTH)[None] < torch.randint(LENGTH // 2, LENGTH + 1, (batch, 1))).long()
    return codes * mask, mask


def _bert() -> nn.Module:
    import transformers

    config = transformers.BertConfig(
        vocab_size=CODES,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        num_labels=CLASSES,
    )
    model: nn.Module = transformers.BertForSequenceClassification(config)
    return model


def bert(batch: int) -> Model:
    """BERT with an attention mask, all parameters trained."""
    return Logits(_bert()), _sentences(batch), torch.randint(CLASSES, (batch,)), per_class


def bert_lora(batch: int) -> Model:
    """BERT with adapters of rank 8 for queries and values."""
    import peft

    config = peft.LoraConfig(r=8, target_modules=["query", "value"], task_type="SEQ_CLS")
    model = peft.get_peft_model(_bert(), config)
    return Logits(model), _sentences(batch), torch.randint(CLASSES, (batch,)), per_class


def gpt2(batch: int) -> Model:
    """GPT-2 with a mask; the output matrix is the table of words."""
    import transformers

    config = transformers.GPT2Config(vocab_size=CODES, n_embd=WIDTH, n_layer=LAYERS, n_head=4, n_positions=LENGTH)
    codes, mask = _sentences(batch)
    return Logits(transformers.GPT2LMHeadModel(config)), (codes, mask), codes, next_word


def vit(batch: int) -> Model:
    """ViT of transformers, 64 patches and a class token."""
    import transformers

    config = transformers.ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        image_size=32,
        patch_size=4,
        num_labels=CLASSES,
    )
    model = Logits(transformers.ViTForImageClassification(config))
    return model, torch.rand(batch, 3, 32, 32), torch.randint(CLASSES, (batch,)), per_class


def encoder(batch: int) -> Model:
    """nn.TransformerEncoder."""
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
    model = nn.Sequential(
        nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False),
        nn.Flatten(),
        nn.Linear(LENGTH * WIDTH, CLASSES),
    )
    return model, torch.randn(batch, LENGTH, WIDTH), torch.randint(CLASSES, (batch,)), per_class


def convnext(batch: int) -> Model:
    """ConvNeXt of transformers, 32 x 32 images."""
    import transformers

    config = transformers.ConvNextConfig(
        hidden_sizes=[48, 96, 192, 384], depths=[1, 1, 2, 1], patch_size=2, num_labels=CLASSES, image_size=32
    )
    model = Logits(transformers.ConvNextForImageClassification(config))
    return model, torch.rand(batch, 3, 32, 32), torch.randint(CLASSES, (batch,)), per_class


def lstm(batch: int) -> Model:
    """nn.LSTM."""
    model = LastState(nn.LSTM(WIDTH, WIDTH, batch_first=True))
    return model, _sentences(batch)[0], torch.randint(CLASSES, (batch,)), per_class


def gru(batch: int) -> Model:
    """nn.GRU."""
    model = LastState(nn.GRU(WIDTH, WIDTH, batch_first=True))
    return model, _sentences(batch)[0], torch.randint(CLASSES, (batch,)), per_class


def resnet18(batch: int) -> Model:
    """ResNet-18 with GroupNorm, 32 x 32 images."""
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    model = nn.Sequential(
        *(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(32, 64), nn.ReLU()),
        *(Block(*sizes) for sizes in (*widths, (512, 512, 1))),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES)),
    )
    return model, torch.rand(batch, 3, 32, 32), torch.randint(CLASSES, (batch,)), per_class


GOALS: dict[Callable[[int], Model], float] = {
    bert: 1.3,
    bert_lora: 1.1,
    gpt2: 1.4,
    vit: 1.4,
    encoder: 1.4,
    convnext: 2,
    lstm: 2,
    gru: 1.5,
    resnet18: 1.6,
}
"""Architectures, and the ratio to plain SGD that issue 22 asks for."""


def main(arguments: list[str] | None = None) -> None:
    """Print a table of ratios to plain SGD; each architecture is timed in a process of its own."""
    arguments = [argument for argument in arguments or [] if argument]
    batch = 16 if "--small" in arguments else 64
    names = [name for name in arguments if not name.startswith("--")] or [make.__name__ for make in GOALS]
    print(f"batch {batch}, time of the processor / plain SGD")
    print("| architecture | engine | SGD, s | ours | asked | Opacus hooks | Opacus ghost |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        code = f"from benchmarks import architectures; architectures.measure({name!r}, {batch})"
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def measure(name: str, batch: int) -> None:
    """Print the row of one architecture."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _quieten()
    make, contenders, errors = globals()[name], dict[str, Callable[[], object]](), dict[str, str]()
    for title, way in {"SGD": _plain, "ours": _ours, "hooks": _hooks, "ghost": _ghost}.items():
        torch.manual_seed(0)
        try:
            contenders[title] = way(*make(batch))
            contenders[title]()
        except Exception as error:  # what a peer cannot train is a result
            contenders.pop(title, None)
            errors[title] = f"fails: {type(error).__name__}"
    seconds = medians(contenders, rounds=ROUNDS, clock=time.process_time)
    ratios = {title: f"{value / seconds['SGD']:.2f}" for title, value in seconds.items()} | errors
    engine = _ENGINES[-1] if _ENGINES else "none"
    cells = [
        name,
        engine,
        f"{seconds['SGD']:.2f}",
        ratios["ours"],
        f"{GOALS[make]:g}",
        ratios["hooks"],
        ratios["ghost"],
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


_ENGINES: list[str] = []


def _called(model: nn.Module, inputs: Any) -> Any:
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def _trained(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.01)


def _plain(model: nn.Module, inputs: Any, targets: Tensor, loss: Any) -> Callable[[], object]:
    optimizer = _trained(model)

    def step() -> None:
        optimizer.zero_grad()
        loss(_called(model, inputs), targets).mean().backward()
        optimizer.step()

    return step


def _ours(model: nn.Module, inputs: Any, targets: Tensor, loss: Any) -> Callable[[], object]:
    engine, optimizer, n = engine_for(model, loss, inputs, targets), _trained(model), len(targets)
    _ENGINES.append(type(engine).__name__)
    sensitivities, ids = np.ones(n), np.arange(n)

    def step() -> None:
        gradients = engine.gradients(inputs, targets)
        total = clipped_ordered_sum(
            gradients,
            gradients.losses.numpy(),
            sensitivities,
            ids,
            owners=sensitivities,
            tail=LinearTail(0.4 * n),
            order=Descending(),
            clipping=ScaleClipped(),
        )
        for parameter, value in zip(engine.parameters, total, strict=True):
            parameter.grad = value / n
        optimizer.step()

    return step


def _hooks(model: nn.Module, inputs: Any, targets: Tensor, loss: Any) -> Callable[[], object]:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model = _for_opacus(model)
    wrapped = GradSampleModule(model)
    optimizer = DPOptimizer(_trained(model), noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=len(targets))

    def step() -> None:
        optimizer.zero_grad()
        loss(_called(wrapped, inputs), targets).mean().backward()
        optimizer.step()

    return step


def _ghost(model: nn.Module, inputs: Any, targets: Tensor, loss: Any) -> Callable[[], object]:
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    class Criterion(nn.Module):
        reduction = "mean"

        def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
            each: Tensor = loss(outputs, labels)
            return each if self.reduction == "none" else each.mean()

    model = _for_opacus(model)
    wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(
        _trained(model), noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=len(targets)
    )
    criterion = DPLossFastGradientClipping(wrapped, optimizer, Criterion())

    def step() -> None:
        optimizer.zero_grad()
        criterion(_called(wrapped, inputs), targets).backward()
        optimizer.step()

    return step


def _for_opacus(model: nn.Module) -> nn.Module:
    """Return a model with the layers that Opacus puts in place of those that it cannot train, such as LSTM."""
    from opacus.validators import ModuleValidator

    trained: nn.Module = ModuleValidator.fix(model).train()
    return trained


def _quieten() -> None:
    """Leave out what transformers says about packages that it does not find."""
    try:
        import transformers
    except ImportError:
        sys.exit("install the extra `peers`: pip install 'inosgm[peers]'")
    transformers.logging.set_verbosity_error()


def startup(layers: int, batch: int = 64) -> None:
    """Print time and memory of the trial of a BERT beside those of a training step, each in its own process."""
    for what in ("step", "check"):
        code = f"from benchmarks import architectures; architectures.measure_startup({layers}, {batch}, {what!r})"
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def measure_startup(layers: int, batch: int, what: str) -> None:
    """Print the processor time of a step with noise, or of the choice of an engine, and the growth of the peak."""
    from inosgm import Plan
    from inosgm.training import Trainer
    from inosgm.training.gradients import BookKeeping

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _quieten()
    globals()["LAYERS"] = layers
    model, inputs, targets, loss = bert(batch)
    plan = Plan(sample_rates=[1.0], sensitivities=[1.0], sizes=[batch], noise_scale=1.0, steps=100)
    trainer = Trainer(
        plan,
        model,
        loss,
        _trained(model),
        owners=np.zeros(batch, dtype=np.int64),
        engine=BookKeeping if what == "step" else None,
    )
    run = (lambda: trainer.step(inputs, targets)) if what == "step" else (lambda: trainer.check(inputs, targets))
    if what == "step":
        trainer.check(inputs, targets)
    status = Path("/proc/self/status")

    def resident(field: str) -> float:
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) / 1024

    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    begin = time.process_time()
    run()
    size = sum(each.numel() for each in model.parameters()) * 4 / 2**20
    spent, grown = time.process_time() - begin, resident("VmHWM") - before
    print(f"BERT of {layers} layers, {size:.0f} MB, batch {batch}: {what} {spent:.1f} s, {grown:.0f} MB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
