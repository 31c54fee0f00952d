"""Recurrent layers of torch, computed step by step from linear maps, so that their matrices can be book-kept."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from inosgm.training.gradients.parameter_flow import Meeting

State = tuple[Tensor, ...]
"""The hidden state (n, width), and for an LSTM its cell."""

Step = Callable[[Tensor, Tensor, State], State]
"""(projected input, projected hidden state, state) -> the next state."""


def recurrent(meeting: Meeting) -> Any:
    """Serve `torch.lstm`, `torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu`, by which nn.LSTM and others compute."""
    if len(meeting.args) != 9 or not isinstance(meeting.args[8], bool):
        raise meeting.refuse("the batch is a packed sequence")
    inputs, state, weights, has_bias, layers, dropout, training, both_ways, batch_first = meeting.args
    states = tuple(state) if isinstance(state, list | tuple) else (state,)
    directions = 1 + both_ways
    each = 2 + 2 * has_bias
    if len(weights) != each * layers * directions:
        raise meeting.refuse("it has a projection")
    sequence = inputs if batch_first else inputs.transpose(0, 1)
    step, last = _STEPS[meeting.name], list[State]()
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            own = weights[each * place : each * (place + 1)]
            first = tuple(part[place].clone() for part in states)  # a copy counts as records, whoever made the state
            steps, end = _run(meeting, step, sequence, first, own, backwards=bool(direction))
            outputs.append(steps)
            last.append(end)
        sequence = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout and training and layer + 1 < layers:
            sequence = F.dropout(sequence, dropout)
    ends = [torch.stack(parts) for parts in zip(*last, strict=True)]
    return (sequence if batch_first else sequence.transpose(0, 1), *ends)


def _run(
    meeting: Meeting, step: Step, sequence: Tensor, state: State, weights: Any, *, backwards: bool
) -> tuple[Tensor, State]:
    """Return the hidden states (n, T, width) of one direction of a layer, and its last state."""
    of_input, of_state, *biases = weights
    for_input, for_state = biases or (None, None)
    with meeting.flow:
        projected = F.linear(sequence, of_input, for_input).unbind(1)
    hidden = []
    for given in reversed(projected) if backwards else projected:
        with meeting.flow:
            own = F.linear(state[0], of_state, for_state)
        state = step(given, own, state)
        hidden.append(state[0])
    return torch.stack(hidden[::-1] if backwards else hidden, 1), state


def _lstm(given: Tensor, own: Tensor, state: State) -> State:
    gates = given + own
    width = gates.shape[1] // 4
    forget_in, new, out = gates[:, : 2 * width].sigmoid(), gates[:, 2 * width : 3 * width].tanh(), gates[:, 3 * width :]
    cell = forget_in[:, width:] * state[1] + forget_in[:, :width] * new
    return out.sigmoid() * cell.tanh(), cell


def _gru(given: Tensor, own: Tensor, state: State) -> State:
    width = given.shape[1] // 3
    gates = (given[:, : 2 * width] + own[:, : 2 * width]).sigmoid()
    new = torch.addcmul(given[:, 2 * width :], gates[:, :width], own[:, 2 * width :]).tanh()
    return (torch.lerp(new, state[0], gates[:, width:]),)


_STEPS: dict[str, Step] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": lambda given, own, state: ((given + own).tanh(),),
    "rnn_relu": lambda given, own, state: ((given + own).relu(),),
}
