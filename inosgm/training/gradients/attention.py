"""Attention of torch, computed with the records as the first axis, so that its projections can be book-kept."""

import inspect
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from inosgm.training.gradients.parameter_flow import Meeting

_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


def attention(meeting: Meeting) -> Any:
    """Serve `F.multi_head_attention_forward`, by which nn.MultiheadAttention computes, positions first."""
    bound = _SIGNATURE.bind(*meeting.args, **meeting.kwargs)
    bound.apply_defaults()
    given = bound.arguments
    for option in ("bias_k", "bias_v", "static_k", "static_v"):
        if given[option] is not None:
            raise meeting.refuse(f"{option} is given")
    query, key, value = given["query"], given["key"], given["value"]
    if query.ndim != 3 or given["add_zero_attn"]:
        raise meeting.refuse("it has no axis of records, or add_zero_attn")
    with meeting.flow:
        q, k, v = _projected(given, query, key, value)
        output, weights = _attended(given, q, k, v)
        output = F.linear(output, given["out_proj_weight"], given["out_proj_bias"]).transpose(0, 1)
    return output, weights


def biased_attention(meeting: Meeting) -> Any:
    """Serve `F.scaled_dot_product_attention` with a mask that is computed from parameters, such as T5's."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = dict(zip(names, meeting.args, strict=False)) | meeting.kwargs
    query, key, value = (given[name] for name in names[:3])
    if any(meeting.free(each) is not None for each in (query, key, value)) or given.get("enable_gqa"):
        raise meeting.refuse("queries, keys or values are parameters")
    scale = given.get("scale") or 1 / math.sqrt(query.shape[-1])
    with meeting.flow:
        weights = torch.softmax(query * scale @ key.transpose(-2, -1) + given["attn_mask"], -1)
        weights = F.dropout(weights, given["dropout_p"]) if given.get("dropout_p") else weights
        return weights @ value


def _projected(given: dict[str, Any], query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values (n, T, width)."""
    weight, bias = given["in_proj_weight"], given["in_proj_bias"]
    if query is key and key is value and not given["use_separate_proj_weight"]:
        q, k, v = F.linear(query.transpose(0, 1), weight, bias).chunk(3, -1)
        return q, k, v
    if given["use_separate_proj_weight"]:
        weights = given["q_proj_weight"], given["k_proj_weight"], given["v_proj_weight"]
    else:
        weights = weight.chunk(3)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    q, k, v = (
        F.linear(each.transpose(0, 1), one, shift)
        for each, one, shift in zip((query, key, value), weights, biases, strict=True)
    )
    return q, k, v


def _attended(given: dict[str, Any], q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return what the heads attend to, (n, T, width), and the weights if they are asked for."""
    n, heads = q.shape[0], given["num_heads"]
    q, k, v = (each.view(*each.shape[:2], heads, -1).transpose(1, 2) for each in (q, k, v))
    mask = _additive(given["attn_mask"], q)
    if mask is not None and mask.ndim == 3:  # (n * heads, T, S)
        mask = mask.view(n, heads, *mask.shape[1:])
    padding = _additive(given["key_padding_mask"], q)
    if padding is not None:
        padding = padding[:, None, None, :]
        mask = padding if mask is None else mask + padding
    dropout = given["dropout_p"] if given["training"] else 0.0
    if not given["need_weights"]:
        causal = given["is_causal"] and mask is None
        attended = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        return attended.transpose(1, 2).flatten(2), None
    scores = q * math.sqrt(1.0 / q.shape[-1]) @ k.transpose(-2, -1)
    weights = torch.softmax(scores if mask is None else scores + mask, -1)
    weights = F.dropout(weights, dropout) if dropout else weights
    attended = (weights @ v).transpose(1, 2).flatten(2)
    return attended, weights.mean(1) if given["average_attn_weights"] else weights


def _additive(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Return a mask as numbers to add to scores: torch leaves out positions where a mask of bools is true."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)
