"""Parity of models of transformers and peft with one backward per record; skipped where the extra `peers` is absent."""

import copy
import warnings

import pytest
import torch
from architectures import classes
from gradient_models import naive, wide
from torch import nn

from inosgm._internal.trees import tree_map
from inosgm.training.gradients import BookKeeping, engine_for

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

N, LENGTH, CODES, SIZES = 5, 7, 20, {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def library(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"{name} is in the extra `peers`")


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, first, mask=None):
        if mask is None:
            return self.model(first).logits
        more = {"decoder_input_ids": first} if self.model.config.is_encoder_decoder else {}
        return self.model(input_ids=first, attention_mask=mask, **more).logits


def words(outputs, targets):
    each = nn.functional.cross_entropy(outputs[:, :-1].transpose(1, 2), targets[:, 1:], reduction="none")
    return each.sum(1)


def sentences():
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(LENGTH)[None] < torch.tensor([7, 5, 3, 7, 2])[:, None]).long()
    return torch.randint(1, CODES, (N, LENGTH), generator=generator) * mask, mask


def bert(hf, **options):
    config = hf.BertConfig(vocab_size=CODES, intermediate_size=32, num_labels=3, **SIZES, **{**QUIET, **options})
    return hf.BertForSequenceClassification(config)


def lora(hf):
    peft = library("peft")
    config = peft.LoraConfig(r=2, target_modules=["query", "value"], lora_dropout=0.0, task_type="SEQ_CLS")
    model = peft.get_peft_model(bert(hf), config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # 0 at the beginning, so that one factor has no gradient
            nn.init.normal_(parameter)
    return model


def gpt2(hf):
    none = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "bos_token_id": 0, "eos_token_id": 0}
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=CODES, n_embd=16, n_layer=2, n_head=2, n_positions=16, **none))


def llama(hf):
    config = hf.LlamaConfig(vocab_size=CODES, num_key_value_heads=1, intermediate_size=32, **SIZES)
    return hf.LlamaForCausalLM(config)


def t5(hf):
    tokens = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    config = hf.T5Config(
        vocab_size=CODES, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, dropout_rate=0.0, **tokens
    )
    return hf.T5ForConditionalGeneration(config)


def vit(hf):
    config = hf.ViTConfig(image_size=8, patch_size=4, intermediate_size=32, num_labels=3, **SIZES, **QUIET)
    return hf.ViTForImageClassification(config)


def convnext(hf):
    config = hf.ConvNextConfig(hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], num_labels=3, image_size=32)
    return hf.ConvNextForImageClassification(config)


@pytest.mark.parametrize("make", [bert, lora, gpt2, llama, t5, vit, convnext], ids=lambda make: make.__name__)
def test_parity(make):
    hf = library("transformers")
    torch.manual_seed(0)
    model, labels, loss = Logits(make(hf)), torch.arange(N) % 3, classes
    if make in (vit, convnext):
        inputs, targets = torch.rand(N, 3, model.model.config.image_size, model.model.config.image_size), labels
    else:
        inputs, targets = sentences(), labels
        if make in (gpt2, llama, t5):
            targets, loss = inputs[0], words
    weights = torch.linspace(0, 2, N, dtype=torch.float64)
    norms, total = naive(model, loss, inputs, targets, weights)
    precise, given = copy.deepcopy(model).double(), tree_map(wide, inputs)
    engine = BookKeeping(precise, loss)
    for _ in range(2):
        found = engine.gradients(given, targets)
        # norms of T5 and Llama are computed in float32, whatever the model is in
        torch.testing.assert_close(found.norms(), norms, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(found.weighted_sum(weights), total, rtol=1e-5, atol=1e-6)


def test_dropout_and_a_mask_keep_the_fast_engine():
    hf = library("transformers")
    model = Logits(bert(hf, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1))
    assert type(engine_for(model, classes, sentences(), torch.arange(N) % 3)) is BookKeeping
