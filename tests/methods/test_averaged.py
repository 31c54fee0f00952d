"""Members that learn in turn: only one of them is trained, and those that had their turn answer together."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from inosgm.methods.adapdp import Averaged
from inosgm.training.gradients import BookKeeping, OneByOne, engine_for
from inosgm.training.losses import per_record
from inosgm.training.models import make


def members(count=3):
    return [make("mlp", classes=3, input_shape=(5,), widths=(4,), seed=seed) for seed in range(count)]


def records():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 5, generator=generator), torch.randint(0, 3, (8,), generator=generator)


def test_gradients_are_those_of_the_member_whose_turn_it_is():
    every, (x, y) = members(2), records()
    model, loss = Averaged(every, [1, 2]), per_record(nn.CrossEntropyLoss())
    for turn, member in enumerate(every):
        model.turn_to(turn)
        engine = engine_for(model.train(), loss, x, y)
        assert isinstance(engine, BookKeeping)
        assert [id(p) for p in engine.parameters] == [id(p) for p in member.parameters()]
        alone = OneByOne(member, loss).gradients(x, y)
        torch.testing.assert_close(engine.gradients(x, y).norms(), alone.norms())


def test_a_member_whose_turn_is_over_stays_as_it_is_under_momentum_and_decay():
    model, (x, y) = Averaged(members(), [1, 1, 1]), records()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    states = []
    for turn in range(3):
        model.turn_to(turn)
        for _ in range(2):
            nn.functional.cross_entropy(model.train()(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        states.append(deepcopy(model.members.state_dict()))
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]) == (not name.startswith("1."))
        assert torch.equal(states[1][name], states[2][name]) == (not name.startswith("2."))
    model.turn_to(1)
    nn.functional.cross_entropy(model(x), y).backward()
    model.turn_to(2)  # with a gradient of the one before still there
    optimizer.step()
    assert all(torch.equal(value, states[2][name]) for name, value in model.members.state_dict().items())


def test_those_that_had_a_turn_answer_by_their_weights_also_after_being_read():
    every, (x, _) = members(), records()
    model = Averaged(every, [1, 3, 5])
    model.turn_to(1)
    expected = 0.25 * every[0](x) + 0.75 * every[1](x)
    torch.testing.assert_close(model.eval()(x), expected)
    read = Averaged([make("mlp", classes=3, input_shape=(5,), widths=(4,), seed=9) for _ in range(3)], [1, 1, 1])
    read.load_state_dict(model.state_dict())
    assert torch.equal(read.eval()(x), model(x))
    assert [p.requires_grad for p in read.parameters()] == [p.requires_grad for p in model.parameters()]


def test_what_is_frozen_stays_frozen_and_what_does_not_fit_is_refused():
    every = members(2)
    every[1][1].requires_grad_(False)
    model = Averaged(every, [1, 1])
    model.turn_to(1)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == [
        "members.1.3.weight",
        "members.1.3.bias",
    ]
    with pytest.raises(ValueError, match="member must be below 2, got 2"):
        model.turn_to(2)
    with pytest.raises(ValueError, match="one for each of 2 members, got 1"):
        Averaged(members(2), [1])
    with pytest.raises(ValueError, match="must not share parameters"):
        Averaged([every[0], every[0]], [1, 1])
