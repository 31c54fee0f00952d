"""Fine-tune a text classifier of Hugging Face with LoRA, each owner of texts with a budget of its own.

The texts are the first lines of docstrings, and the model says which library a function belongs to. Each library owns
its lines, and grants another epsilon. Texts have several lengths: `collate_fn` pads them, and the trainer first tries
whether the loss of a text depends on its padding. Only the adapters of LoRA and the head are trained, so only their
gradients are clipped and noised.

With a folder that holds a model and its tokenizer in Hugging Face's format, that model is fine-tuned. Without, it is
a tiny one with random weights that reads letters, which learns little: it shows how, not how well.

    python -m examples.hugging_face_lora --folder path/to/bert-base-uncased --steps 200
"""

import argparse
import importlib
import inspect
import warnings
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from inosgm import LinearTail, Owners, Trainer, plan_scale

LIBRARIES = {"numpy": 2.0, "scipy.signal": 4.0, "scipy.special": 8.0, "scipy.stats": 8.0}
"""The owners of texts, and the epsilon that each grants."""

LONGEST = 64
"""The largest number of tokens of a text."""


def texts_of(library: str) -> list[str]:
    """Return the first line of the docstring of every public function and class of a library."""
    module, found = importlib.import_module(library), set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names that are deprecated
        for name in module.__all__:
            lines = [line.strip() for line in (inspect.getdoc(getattr(module, name)) or "").splitlines()]
            plain = (line for line in lines if " " in line and "(" not in line)  # no signatures: they name the function
            found.add(next(plain, ""))
    return sorted(found - {""})


def model_and_tokens(folder: str | None) -> tuple[Any, Any]:
    """Return a classifier and a function from a text to its tokens: those of a folder, or tiny random ones."""
    try:
        import transformers
    except ImportError:
        raise SystemExit('this needs transformers, which is not installed: pip install "inosgm[peers]"') from None
    if folder is not None:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=len(LIBRARIES), ignore_mismatched_sizes=True
        )  # a head for other classes is made anew
        return model, lambda text: tokenizer(text, truncation=True, max_length=LONGEST)["input_ids"]
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=LONGEST, num_labels=len(LIBRARIES),
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config), lambda text: list(text.encode("ascii", "replace"))[
        :LONGEST
    ]


def with_adapters(model: Any) -> Any:
    """Freeze a model but for its head and, where peft is installed, adapters of LoRA in its attention."""
    try:
        import peft
    except ImportError:
        print('only the head is trained: pip install "inosgm[peers]" for peft, which adds LoRA')
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith(("classifier", "score")))
        return model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by a name that will change
        return peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=8, lora_dropout=0.0))


def padded(items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Return texts as a batch that is as long as its longest one."""
    ids = [item["input_ids"] for item in items]
    masks = [torch.ones_like(one) for one in ids]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence(masks, batch_first=True),
        "labels": torch.tensor([item["labels"] for item in items]),
    }


def main(steps: int = 40, folder: str | None = None, output: str = "fine-tuned") -> None:
    """Fine-tune the classifier, say what it is worth to each owner and what each has spent, and save it."""
    model, tokens = model_and_tokens(folder)
    items = [
        {"input_ids": torch.tensor(tokens(text)), "labels": number, "library": library}
        for number, library in enumerate(LIBRARIES)
        for text in texts_of(library)
    ]
    train = [item for place, item in enumerate(items) if place % 4]
    held_out = items[::4]
    owners = Owners(of_record=[item["library"] for item in train], epsilon=LIBRARIES, delta=1e-5)
    plan = plan_scale(owners, steps=steps, expected_batch=64, clip_norm=0.5)
    print(plan.report())

    model = with_adapters(model)
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    everything = sum(parameter.numel() for parameter in model.parameters())
    print(f"\ntrains {sum(parameter.numel() for parameter in learnt):,} of {everything:,} parameters")
    trainer = Trainer(
        plan,
        model,
        torch.nn.CrossEntropyLoss(),
        torch.optim.AdamW(learnt, lr=2e-3),
        tail=LinearTail(plan.tail_length(0.4)),
        collate_fn=padded,
        max_physical_batch=32,
        ema=0.95,
    )
    curve = trainer.fit(train, held_out=(held_out, [item["library"] for item in held_out]), progress=False)
    print(f"\nengine: {type(trainer.engine).__name__}\n\n{curve}")
    print("\nepsilon spent: " + ", ".join(f"{owner} {spent:.2f}" for owner, spent in trainer.spent().items()))
    with trainer.averaged():
        print(f"saved to {trainer.save(output)}, under the model's own names")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--folder", help="a model and its tokenizer in Hugging Face's format")
    options.add_argument("--output", default="fine-tuned", help="where the fine-tuned model goes")
    main(**vars(options.parse_args()))
