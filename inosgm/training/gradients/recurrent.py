"""Recurrent layers of torch, computed step by step from linear maps, so that their matrices can be book-kept."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from inosgm.training.gradients.parameter_flow import Meeting
from inosgm.training.gradients.per_record import Outer, PerRecord, Rows, like, wide

State = tuple[Tensor, ...]
"""The hidden state (n, width), and for an LSTM its cell."""

Cell = Callable[[Tensor, State], State]
"""(gates before their functions, state) -> the next state."""


def recurrent(meeting: Meeting) -> Any:
    """Serve `torch.lstm`, `torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu`, by which nn.LSTM and others compute."""
    if len(meeting.args) != 9 or not isinstance(meeting.args[8], bool):
        raise meeting.refuse("the batch is a packed sequence")
    inputs, state, weights, has_bias, layers, dropout, training, both_ways, batch_first = meeting.args
    states = tuple(state) if isinstance(state, list | tuple) else (state,)
    if any(meeting.free(part) is not None for part in states):
        raise meeting.refuse("its first state is computed from parameters")
    directions = 1 + both_ways
    each = 2 + 2 * has_bias
    if len(weights) != each * layers * directions:
        raise meeting.refuse("it has a projection")
    sequence = inputs if batch_first else inputs.transpose(0, 1)
    last = list[State]()
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            own = weights[each * place : each * (place + 1)]
            first = tuple(part[place].clone() for part in states)  # a copy counts as records, whoever made the state
            run = _run_gru if meeting.name == "gru" else partial(_run, _CELLS[meeting.name])
            steps, end = run(meeting, sequence, first, own, backwards=bool(direction))
            outputs.append(steps)
            last.append(end)
        sequence = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout and training and layer + 1 < layers:
            sequence = F.dropout(sequence, dropout)
    ends = [torch.stack(parts) for parts in zip(*last, strict=True)]
    return (sequence if batch_first else sequence.transpose(0, 1), *ends)


def _run(
    cell: Cell, meeting: Meeting, sequence: Tensor, state: State, weights: Any, *, backwards: bool
) -> tuple[Tensor, State]:
    """Return the hidden states (n, T, width) of one direction of a layer, and its last state.

    Inputs and states are projected and added up, so both projections have the same output gradient: that of the sum.
    """
    of_input, of_state, *biases = weights
    projected = F.linear(sequence, of_input, sum(biases) if biases else None)
    hidden, before, turned = list[Tensor](), list[Tensor](), of_state.t()
    steps = projected.unbind(1)
    for given in reversed(steps) if backwards else steps:
        before.append(state[0].detach())
        state = cell(torch.addmm(given, state[0], turned), state)
        hidden.append(state[0])
    if backwards:
        hidden.reverse()
        before.reverse()

    def of_inputs(kept: tuple[Tensor, ...], grads: Tensor) -> PerRecord:
        return Outer(like(grads, kept[0]), grads)

    def of_states(_: tuple[Tensor, ...], grads: Tensor) -> PerRecord:
        return Outer(like(grads, torch.stack(before, 1)), grads)

    def of_bias(_: tuple[Tensor, ...], grads: Tensor) -> PerRecord:
        return Rows(wide(grads).sum(1))

    pairs = [(meeting.free(of_input), (sequence,), of_inputs), (meeting.free(of_state), (), of_states)]
    meeting.meets(projected, [*pairs, *((meeting.free(bias), (), of_bias) for bias in biases)])
    return torch.stack(hidden, 1), state


def _run_gru(
    meeting: Meeting, sequence: Tensor, state: State, weights: Any, *, backwards: bool
) -> tuple[Tensor, State]:
    """Return the same for a GRU, which multiplies a part of the projected state before it is added."""
    of_input, of_state, *biases = weights
    for_input, for_state = biases or (None, None)
    with meeting.flow:
        projected = F.linear(sequence, of_input, for_input).unbind(1)
    hidden, width = list[Tensor](), of_state.shape[1]
    for given in reversed(projected) if backwards else projected:
        with meeting.flow:
            own = F.linear(state[0], of_state, for_state)
        sizes = [2 * width, width]
        (given_gates, given_new), (own_gates, own_new) = (torch.split(part, sizes, 1) for part in (given, own))
        reset, keep = (given_gates + own_gates).sigmoid().chunk(2, 1)
        new = torch.addcmul(given_new, reset, own_new).tanh()
        state = (torch.lerp(new, state[0], keep),)
        hidden.append(state[0])
    return torch.stack(hidden[::-1] if backwards else hidden, 1), state


def _lstm(gates: Tensor, state: State) -> State:
    width = gates.shape[1] // 4
    # A split makes one copy in the backward pass; slices would make one each.
    both, new, out = torch.split(gates, [2 * width, width, width], 1)
    take, keep = both.sigmoid().chunk(2, 1)
    cell = torch.addcmul(keep * state[1], take, new.tanh())
    return out.sigmoid() * cell.tanh(), cell


_CELLS: dict[str, Cell] = {
    "lstm": _lstm,
    "rnn_tanh": lambda gates, state: (gates.tanh(),),
    "rnn_relu": lambda gates, state: (gates.relu(),),
}
