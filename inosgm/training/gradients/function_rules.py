"""Rules for torch functions in which a parameter meets records: the gradients of the parameter, one per record."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.func import vjp, vmap

from inosgm.training.gradients.attention import attention, biased_attention
from inosgm.training.gradients.convolution import Windows
from inosgm.training.gradients.parameter_flow import Meeting, RecordFree, lookup_arguments, lookup_padding
from inosgm.training.gradients.per_record import Lookups, Outer, PerRecord, Rows, Single, like, wide
from inosgm.training.gradients.recurrent import recurrent


def _sum(meeting: Meeting) -> Any:
    """Serve a + alpha b and a - alpha b."""
    output, (a, b, *_) = meeting.run(), _operands(meeting)
    alpha = meeting.kwargs.get("alpha", 1)
    signs = {"add": (1, alpha), "sub": (1, -alpha), "rsub": (-alpha, 1)}[meeting.name]
    for operand, sign in zip((a, b), signs, strict=True):
        free = meeting.free(operand)
        if free is not None:
            meeting.meets(output, [(free, (), partial(_signed, meeting, free, sign))])
    return output


def _signed(meeting: Meeting, free: RecordFree, sign: Any, _: tuple[Tensor, ...], grads: Tensor) -> PerRecord:
    return meeting.reduced(sign * wide(grads), free)


def _product(meeting: Meeting) -> Any:
    """Serve a * b."""
    (a, b, *_) = _operands(meeting)
    if meeting.free(a) is not None and meeting.free(b) is not None:
        raise meeting.refuse("both factors have parameters")
    free, other = (meeting.free(a), b) if meeting.free(a) is not None else (meeting.free(b), a)
    assert free is not None
    kept = _before_writing(meeting, other)
    output = meeting.run()
    meeting.meets(output, [(free, (kept,), lambda kept, grads: meeting.reduced(wide(grads) * kept[0], free))])
    return output


def _linear(meeting: Meeting) -> Any:
    """Serve `F.linear(inputs, weight, bias)`."""
    inputs, weight, bias = _named(meeting, "input", "weight", "bias")
    return _affine(meeting, meeting.run(), inputs, weight, bias, turned=False)


def _matrix_product(meeting: Meeting) -> Any:
    """Serve inputs @ weight."""
    inputs, weight = _operands(meeting)[:2]
    if meeting.free(inputs) is not None or weight.ndim != 2:
        return _any_function(meeting)
    return _affine(meeting, meeting.run(), inputs, weight, None, turned=True)


def _added_product(meeting: Meeting) -> Any:
    """Serve `addmm(bias, inputs, weight)`, by which Conv1D of GPT-2 computes."""
    bias, inputs, weight = _operands(meeting)[:3]
    if meeting.free(inputs) is not None or any(meeting.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")):
        return _any_function(meeting)
    return _affine(meeting, meeting.run(), inputs, weight, bias, turned=True)


def _affine(meeting: Meeting, output: Tensor, inputs: Tensor, weight: Any, bias: Any, *, turned: bool) -> Tensor:
    """Keep the gradients of a matrix, (in, out) if it is turned and (out, in) if not, and of a bias.

    Inputs may have the records and their positions in one axis, records first.
    """
    n = meeting.records
    if inputs.ndim < 2 or inputs.shape[0] % n:
        raise meeting.refuse("its input does not begin with the records of the batch")

    def of_matrix(kept: tuple[Tensor, ...], grads: Tensor) -> PerRecord:
        given = like(grads, kept[0]).reshape(n, -1, inputs.shape[-1])
        grads = grads.reshape(n, -1, grads.shape[-1])
        first, second = (grads, given) if turned else (given, grads)
        return Single(first[:, 0], second[:, 0]) if given.shape[1] == 1 else Outer(first, second)

    def of_bias(_: tuple[Tensor, ...], grads: Tensor) -> PerRecord:
        return Rows(wide(grads).reshape(n, -1, grads.shape[-1]).sum(1))

    if bias is not None and meeting.free(bias) is not None and bias.ndim != 1:
        raise meeting.refuse("the bias is no vector")
    meeting.meets(output, [(meeting.free(weight), (inputs,), of_matrix), (meeting.free(bias), (), of_bias)])
    return output


def _table(meeting: Meeting) -> Any:
    """Serve `F.embedding`."""
    indices, weight = lookup_arguments(meeting.args, meeting.kwargs)
    skipped, n = lookup_padding(meeting.args, meeting.kwargs, weight), meeting.records
    if any(meeting.kwargs.get(option) for option in ("max_norm", "scale_grad_by_freq", "sparse")) or any(
        meeting.args[3:]
    ):
        raise meeting.refuse("its gradient depends on an option")
    if indices.shape[:1] != (n,):
        raise meeting.refuse("its input does not begin with the records of the batch")
    output = meeting.run()

    def gradient(kept: tuple[Tensor, ...], grads: Tensor) -> PerRecord:
        rows, grads = kept[0].reshape(n, -1), grads.reshape(n, -1, grads.shape[-1])
        if skipped is not None:
            grads = grads.masked_fill((rows == skipped)[..., None], 0.0)
        return Lookups(rows, grads, weight.shape[0])

    meeting.meets(output, [(meeting.free(weight), (indices,), gradient)])
    return output


def _layer_norm(meeting: Meeting) -> Any:
    """Serve `F.layer_norm` and `F.rms_norm`."""
    with_mean = meeting.name == "layer_norm"
    names = ("input", "normalized_shape", "weight", *(("bias",) if with_mean else ()), "eps")
    inputs, shape, weight, *bias, eps = _named(meeting, *names)
    if eps is None and with_mean:
        eps = 1e-5

    scale, shift = meeting.free(weight), meeting.free(bias[0]) if bias else None

    def of_scale(kept: tuple[Tensor, ...], grads: Tensor) -> PerRecord:
        assert scale is not None
        if with_mean:
            standard = F.layer_norm(wide(kept[0]), list(shape), eps=eps)
        else:
            standard = F.rms_norm(wide(kept[0]), list(shape), eps=eps)
        return meeting.reduced(wide(grads) * standard, scale)

    output = meeting.run()
    meeting.meets(output, [(scale, (inputs,), of_scale)])
    if shift is not None:
        meeting.meets(output, [(shift, (), partial(_signed, meeting, shift, 1))])
    return output


def _group_norm(meeting: Meeting) -> Any:
    """Serve `F.group_norm`."""
    inputs, groups, weight, bias, eps = _named(meeting, "input", "num_groups", "weight", "bias", "eps")

    def to_channels(values: Tensor) -> PerRecord:
        return Rows(values.sum(tuple(range(2, values.ndim))) if values.ndim > 2 else values)

    def of_scale(kept: tuple[Tensor, ...], grads: Tensor) -> PerRecord:
        return to_channels(wide(grads) * F.group_norm(wide(kept[0]), groups, eps=1e-5 if eps is None else eps))

    if inputs.shape[:1] != (meeting.records,):
        raise meeting.refuse("its input does not begin with the records of the batch")
    output = meeting.run()
    meeting.meets(
        output,
        [
            (meeting.free(weight), (inputs,), of_scale),
            (meeting.free(bias), (), lambda _, grads: to_channels(wide(grads))),
        ],
    )
    return output


def _convolution(meeting: Meeting) -> Any:
    """Serve convolutions by their functions, and transposed ones."""
    transposed = "transpose" in meeting.name
    options = (
        ("stride", "padding", "output_padding", "groups", "dilation")
        if transposed
        else (
            "stride",
            "padding",
            "dilation",
            "groups",
        )
    )
    inputs, weight, bias, *values = _named(meeting, "input", "weight", "bias", *options)
    given = dict(zip(options, values, strict=True))
    rank = weight.ndim - 2
    if inputs.shape[:1] != (meeting.records,) or inputs.ndim != weight.ndim:
        raise meeting.refuse("its input does not begin with the records of the batch")
    if isinstance(given["padding"], str):
        return _any_function(meeting)
    stride, dilation = (_numbers(given[name], rank, 1) for name in ("stride", "dilation"))
    padding, groups = _numbers(given["padding"], rank, 0), given["groups"] or 1
    output = meeting.run()

    def of_weight(kept: tuple[Tensor, ...], grads: Tensor) -> PerRecord:
        grads, known = wide(grads), wide(kept[0])
        # a transposed convolution is the gradient of a convolution: inputs and output gradients change places
        pair = (grads, known) if transposed else (known, grads)
        return Windows(*pair, wide(weight.detach()), stride, padding, dilation, groups)

    def of_bias(_: tuple[Tensor, ...], grads: Tensor) -> PerRecord:
        return Rows(wide(grads).sum(tuple(range(2, grads.ndim))))

    meeting.meets(output, [(meeting.free(weight), (inputs,), of_weight), (meeting.free(bias), (), of_bias)])
    return output


def _joined(meeting: Meeting) -> Any:
    """Serve `torch.cat` along another axis than that of the records."""
    parts = meeting.args[0] if meeting.args else meeting.kwargs["tensors"]
    axis = meeting.args[1] if len(meeting.args) > 1 else meeting.kwargs.get("dim", 0)
    output = meeting.run()
    axis %= output.ndim
    if axis == 0:
        raise meeting.refuse("parameters are joined to the records of the batch")
    begin = 0
    for part in parts:
        free, length = meeting.free(part), part.shape[axis]
        if free is not None:

            def gradient(_: tuple[Tensor, ...], grads: Tensor, free: Any = free, begin: int = begin) -> PerRecord:
                return meeting.reduced(grads.narrow(axis, begin, free.tensor.shape[axis]), free)

            meeting.meets(output, [(free, (), gradient)])
        begin += length
    return output


def _expanded(meeting: Meeting) -> Any:
    """Serve `parameter.expand_as(records)`."""
    output, free = meeting.run(), meeting.free(meeting.args[0])
    if free is None:
        raise meeting.refuse("records are expanded to the shape of a parameter")
    meeting.meets(output, [(free, (), lambda _, grads: meeting.reduced(wide(grads), free))])
    return output


def _any_function(meeting: Meeting) -> Any:
    """Serve a function without a rule, by mapping its gradient over the records."""
    output, n = meeting.run(), meeting.records
    if not isinstance(output, Tensor) or output.shape[:1] != (n,):
        raise meeting.refuse("its output does not begin with the records of the batch")
    every = (*meeting.args, *meeting.kwargs.values())
    if any(isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value) for value in every):
        raise meeting.refuse("it takes a list of tensors")
    mapped = [
        place for place, value in enumerate(every) if isinstance(value, Tensor) and meeting.flow.known(value) is None
    ]
    if any(every[place].shape[:1] != (n,) for place in mapped):
        raise meeting.refuse("its input does not begin with the records of the batch")
    if any(output is every[place] for place in mapped):
        raise meeting.refuse("it overwrites its input")

    def gradient_for(place: int) -> Callable[[tuple[Tensor, ...], Tensor], PerRecord]:
        def one(record: tuple[Tensor, ...], grads: Tensor) -> Tensor:
            def call(parameter: Tensor) -> Tensor:
                values = [value.detach() if isinstance(value, Tensor) else value for value in every]
                for at, value in zip(mapped, record, strict=True):
                    values[at] = value[None]
                values[place] = parameter
                named = dict(zip(meeting.kwargs, values[len(meeting.args) :], strict=True))
                result: Tensor = meeting.function(*values[: len(meeting.args)], **named)
                return result

            pulled: Tensor = vjp(call, every[place].detach())[1](grads[None])[0]
            return pulled

        def gradient(kept: tuple[Tensor, ...], grads: Tensor) -> PerRecord:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop")  # torch runs some functions in a loop
                return Rows(wide(vmap(one)(kept, like(output, grads))))

        return gradient

    kept = [every[place] for place in mapped]
    for place, value in enumerate(every):
        free = meeting.free(value)
        if free is not None:
            meeting.meets(output, [(free, kept, gradient_for(place))])
    return output


def _named(meeting: Meeting, *names: str) -> list[Any]:
    """Return arguments in an order, by position or by name; None for those that are left out."""
    values = [*meeting.args, *[None] * len(names)][: len(names)]
    return [meeting.kwargs.get(name, value) for name, value in zip(names, values, strict=True)]


def _operands(meeting: Meeting) -> list[Any]:
    """Return arguments by position, then those by name."""
    named = ("input", "self", "other", "mat1", "mat2")
    return [*meeting.args, *(meeting.kwargs[name] for name in named if name in meeting.kwargs)]


def _before_writing(meeting: Meeting, other: Any) -> Tensor:
    """Return a factor as it was, if the function writes its result to it."""
    if not isinstance(other, Tensor):
        raise meeting.refuse("one factor is no tensor")
    in_place = meeting.function.__name__.endswith("_") and not meeting.function.__name__.endswith("__")
    written = in_place or meeting.function.__name__.startswith("__i")
    return other.detach().clone() if written and other is meeting.args[0] else other


def _numbers(value: Any, rank: int, default: int) -> tuple[int, ...]:
    if value is None:
        value = default
    return (value,) * rank if isinstance(value, int) else tuple(value) * (rank if len(value) == 1 else 1)


FUNCTION_RULES: dict[str, Callable[[Meeting], Any]] = {
    "": _any_function,
    "add": _sum,
    "sub": _sum,
    "rsub": _sum,
    "mul": _product,
    "linear": _linear,
    "matmul": _matrix_product,
    "addmm": _added_product,
    "embedding": _table,
    "layer_norm": _layer_norm,
    "rms_norm": _layer_norm,
    "group_norm": _group_norm,
    **{f"conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": _convolution for rank in (1, 2, 3)},
    "cat": _joined,
    "expand_as": _expanded,
    "multi_head_attention_forward": attention,
    "scaled_dot_product_attention": biased_attention,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), recurrent),
}
"""Rules by the name of a function; the one without a name serves all others."""
