"""Models that write to themselves as they run: no record reaches a parameter, a buffer or an attribute without noise.

On commit 09c50e1, these tests fail, but for models that must be served and for layers that were refused before.
"""

from collections import deque
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, spectral_norm

from inosgm import Plan, audit_mechanism, certify, plan_uniform
from inosgm.audit.confidence import confidences
from inosgm.methods.asc import AdaptiveShares, plan_asc
from inosgm.methods.ipate.learning import Learning
from inosgm.owners import Owners
from inosgm.training import BookKeeping, Functional, OneByOne, Trainer
from inosgm.training.gradients import Engine, Gradients, engine_for, refuse_mixing
from inosgm.training.gradients.sandbox import sandbox
from inosgm.training.gradients.snapshot import LARGEST_CONTAINER, Snapshot
from inosgm.training.losses import per_record

N = 24
X = np.random.default_rng(0).normal(size=(N, 4)).astype(np.float32) + 7  # no synthetic record looks like this
Y = np.arange(N) % 3
HELD_OUT = np.random.default_rng(1).normal(size=(N, 4)).astype(np.float32), np.zeros(N, dtype=np.int64)


class Writing(nn.Module):
    """A linear layer that hands its batch to a function which writes, in some modes, while a clock is on.

    The clock is an object that a snapshot does not look into, as a closure or a global would be.
    """

    def __init__(self, write, modes=(True, False)):
        super().__init__()
        self.linear, self.square = nn.Linear(4, 3), nn.Parameter(torch.arange(16.0).view(4, 4), requires_grad=False)
        self.centre = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.codes = nn.Parameter(torch.eye(4), requires_grad=False)
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("passes", torch.tensor(0))
        self.plain, self.bank, self.teacher = torch.zeros(4), {"rows": [torch.zeros(4)]}, [nn.Linear(4, 1)]
        self.extra, self.begun = [0.0], False
        self.write, self.modes, self.clock = write, modes, SimpleNamespace(on=True)

    def forward(self, x):
        outputs = self.linear(x)
        if self.training in self.modes and self.clock.on:
            self.write(self, x.detach(), outputs)
        return outputs

    def get_extra_state(self):
        return {"extra": self.extra}

    def set_extra_state(self, state):
        self.extra = state["extra"]


def centre(model, x, outputs):
    """The centre of DINO."""
    with torch.no_grad():
        model.centre.mul_(0.9).add_(0.1 * x[-1])


def codebook(model, x, outputs):
    """The codebook of a VQ-VAE."""
    with torch.no_grad():
        nearest = torch.cdist(x, model.codes).argmin(1)
        model.codes.index_copy_(0, nearest, 0.9 * model.codes[nearest] + 0.1 * x)


def through_data(model, x, outputs):
    model.centre.data.copy_(x[-1])


def trained(model, x, outputs):
    model.linear.bias.data[0] = x[-1, 0]


def memory(model, x, outputs):
    model.centre.data = x[-1].clone()


def transposed(model, x, outputs):
    """The same memory, read in another order."""
    model.square.data = model.square.data.as_strided((4, 4), (1, 4))


def other_parameter(model, x, outputs):
    model.centre = nn.Parameter(x[-1].clone(), requires_grad=False)


def other_module(model, x, outputs):
    model.linear = nn.Linear(4, 3)


def buffer(model, x, outputs):
    model.seen.copy_(x[-1])


def other_buffer(model, x, outputs):
    model.seen = x[-1].clone()


def further_buffer(model, x, outputs):
    model.register_buffer("cache", x[-1].clone())


def all_buffers(model, x, outputs):
    model._buffers = {**model._buffers, "seen": x[-1].clone()}


def counter(model, x, outputs):
    """What counts passes tells how many records were drawn, if each has a pass of its own."""
    model.passes.add_(1)


def first_pass(model, x, outputs):
    """Parameters that are chosen by the first batch."""
    if not model.begun:
        model.centre.data.copy_(x.mean(0))
        model.begun = True


def plain(model, x, outputs):
    model.plain.copy_(x[-1])


def in_a_list(model, x, outputs):
    model.bank["rows"][0].copy_(x[-1])


def hidden_module(model, x, outputs):
    """A teacher in a list, so that its parameters are not trained."""
    model.teacher[0].weight.data.copy_(x[-1:])


def extra_state(model, x, outputs):
    model.extra = x[-1].tolist()


def backward(model, x, outputs):
    def write(output_grads):
        model.centre.data.fill_(output_grads[-1, 0])

    if outputs.requires_grad:
        outputs.register_hook(write)


def rescaled(model, x, outputs):
    F.embedding(torch.tensor([1]), model.codes, max_norm=2.0)  # nothing is that long, yet


WRITES = {
    centre: "parameter 'centre'",
    codebook: "parameter 'codes'",
    through_data: "parameter 'centre'",
    trained: r"parameter 'linear\.bias'",
    memory: "parameter 'centre'",
    transposed: "parameter 'square'",
    other_parameter: "parameter 'centre'",
    other_module: "module 'linear'",
    buffer: "buffer 'seen'",
    other_buffer: "buffer 'seen'",
    further_buffer: "adds the buffer 'cache'.*first pass only",
    all_buffers: "all buffers of its Writing",
    counter: "buffer 'passes'",
    first_pass: "parameter 'centre'",
    plain: "tensor 'plain'",
    in_a_list: r"tensor .*bank.*rows.*0",
    hidden_module: r"parameter .*teacher.*0.*weight",
    extra_state: "extra state of its Writing",
    backward: "parameter 'centre'",
    rescaled: "parameter 'codes'",
}


def name_of(value):
    return getattr(value, "__name__", None)


class Own(OneByOne):
    """An engine of the user's."""


class Charges(list):
    """A ledger that takes everything."""

    def charge(self, cost):
        self.append(cost)


def plan(steps=20, noise_scale=1.0):
    return Plan(sample_rates=[0.9], sensitivities=[1.0], sizes=[N], noise_scale=noise_scale, steps=steps)


def trainer(model, loss=None, frozen=False, **more):
    trained = model.parameters() if frozen else [each for each in model.parameters() if each.requires_grad]
    more = {"owners": [0] * N, "key": 3, "charge_steps": 1, **more}
    return Trainer(plan(), model, loss or nn.CrossEntropyLoss(), torch.optim.SGD(trained, lr=0.1), **more)


def write_error(what):
    return pytest.raises(ValueError, match=rf"(?s)must leave the model as it was, but .*{what}.*without noise")


def held(model):
    """Return everything that can be told about what a model holds: objects, memory, counts of writes, bits."""
    tensors = [*model.parameters(), *model.buffers()]
    for module in model.modules():
        tensors += [each for each in vars(module).values() if isinstance(each, torch.Tensor)]
    if isinstance(model, Writing):
        tensors += [model.bank["rows"][0], *model.teacher[0].parameters()]
    about = [(id(t), t.data_ptr(), t.stride(), t._version, t.detach().contiguous().numpy().tobytes()) for t in tensors]
    attributes = [(id(module), list(vars(module)), module.training) for module in model.modules()]
    return about, attributes, list(model.state_dict()), str(getattr(model, "extra", None))


def without_counts(found):
    """Leave out counts of writes, which a step may change if what was written is put back."""
    about, *others = found
    return [(*head, bits) for *head, _, bits in about], *others


# the sandbox


@pytest.mark.parametrize("engine", [None, BookKeeping, OneByOne, Own], ids=str)
@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("write", WRITES, ids=name_of)
def test_a_model_that_writes_is_refused_before_anything_is_spent(write, mode, engine):
    model, charges = Writing(write, modes=(mode,)), Charges()
    made = trainer(model, engine=engine, ledger=charges)
    before = held(model)
    for _ in range(2):  # nothing is left of the first try
        with pytest.raises(ValueError, match=WRITES[write]):
            made.step(X, Y)
        assert held(model) == before
    assert (charges, made.released, model.begun) == ([], 0, False)


@pytest.mark.parametrize("write", [centre, buffer, counter, plain, memory], ids=name_of)
def test_the_engine_of_torch_func_refuses_as_well(write):
    """torch itself raises where a record is to be written from within vmap."""
    model = Writing(write)
    before = held(model)
    with pytest.raises((ValueError, RuntimeError)):
        trainer(model, engine=Functional).check(X, Y)
    assert held(model) == before


@pytest.mark.parametrize("mode", [True, False])
def test_engine_for_tries_both_modes(mode):
    model = Writing(buffer, modes=(mode,))
    with pytest.raises(ValueError, match="buffer 'seen'"):
        engine_for(model, per_record(nn.CrossEntropyLoss()), torch.from_numpy(X), torch.from_numpy(Y))


def test_writes_with_some_values_only():
    def write(model, x, outputs):
        if (x < 0).any():
            model.centre.data.copy_(x[-1])

    with write_error("parameter 'centre'"):
        trainer(Writing(write), engine=OneByOne).check(X, Y)


def test_no_real_record_is_seen_before_the_first_step():
    seen = []
    for engine in (None, OneByOne, BookKeeping):
        made = trainer(Writing(lambda model, x, outputs: seen.append(x.clone())), engine=engine)
        made.check(X, Y)
    assert not np.isin(torch.cat(seen).numpy(), X).any()


class Picky(Writing):
    """Takes no synthetic record."""

    def forward(self, x):
        if x.min() < 2:
            raise ValueError("values must be above 2")
        return super().forward(x)


def nothing(model, x, outputs):
    pass


def test_a_model_that_takes_no_synthetic_records_is_tried_on_the_first_one_and_left_as_it_was():
    model = Picky(nothing)
    made = trainer(model, engine=OneByOne)
    before = held(model)
    made.check(X, Y)
    assert held(model) == before
    with pytest.raises(ValueError, match="classes 0 to 2"):
        trainer(Picky(nothing), engine=OneByOne).check(X, Y + 1)
    for write in (centre, through_data, first_pass):
        for modes in ((True,), (False,)):
            model = Picky(write, modes=modes)
            before = held(model)
            with write_error("parameter 'centre'"):
                trainer(model, engine=OneByOne).check(X, Y)
            assert held(model) == before


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
@pytest.mark.parametrize("write", WRITES, ids=name_of)
def test_a_trial_leaves_everything_as_it_was(write, error):
    model = Writing(write).eval()
    model.linear.weight.grad = torch.ones(3, 4)
    model.numbers = [1, 2]
    before, kept = held(model), model.linear.weight.grad
    with pytest.raises(error) if error else nullcontext(), sandbox(model):
        model(torch.ones(2, 4)).sum().backward()
        model.numbers.append(3)
        model.begun = 7
        if error:
            raise error
    assert held(model) == before
    assert (model.numbers, model.begun, model.linear.weight.grad is kept) == ([1, 2], False, True)
    assert torch.equal(kept, torch.ones(3, 4))


# every step, for good


@pytest.mark.parametrize("most", [None, 7])
@pytest.mark.parametrize("engine", [None, OneByOne, Own], ids=str)
@pytest.mark.parametrize("write", WRITES, ids=name_of)
def test_a_model_that_begins_to_write_after_some_steps(write, engine, most):
    model, charges = Writing(write), Charges()
    made = trainer(model, engine=engine, max_physical_batch=most, ledger=charges)
    model.clock.on = False
    for _ in range(5):
        made.step(X, Y)
    before = without_counts(held(model))
    model.clock.on = True
    with write_error(WRITES[write]):
        made.step(X, Y)
    assert without_counts(held(model)) == before
    assert (made.released, len(charges)) == (6, 6)
    model.clock.on = False
    made.step(X, Y)
    assert (made.released, len(charges)) == (7, 7)


@pytest.mark.parametrize("write", [centre, through_data, buffer, plain], ids=name_of)
def test_what_a_pass_writes_is_undone_if_it_raises(write):
    def write_and_raise(model, x, outputs):
        write(model, x, outputs)
        raise KeyboardInterrupt

    model = Writing(write_and_raise)
    model.clock.on = False
    made = trainer(model)
    made.step(X, Y)
    before = without_counts(held(model))
    model.clock.on = True
    with pytest.raises(KeyboardInterrupt):
        made.step(X, Y)
    assert without_counts(held(model)) == before


def test_what_a_part_writes_and_the_next_one_undoes():
    def write(model, x, outputs):
        """Parts of the first pass take turns."""
        model.clock.turn = -model.clock.turn
        model.seen.add_(model.clock.turn)

    model = Writing(write)
    model.clock.on, model.clock.turn = False, -1
    made = trainer(model, max_physical_batch=12)
    made.step(X, Y)
    model.clock.on = True
    with write_error("buffer 'seen'"):
        made.step(X, Y)
    assert not model.seen.any()


class Late(Gradients):
    """Runs the model again for the sum, as ghost clipping does, and the model writes then."""

    def __init__(self, gradients, model):
        self._gradients, self._model = gradients, model
        self.losses, self.outputs = gradients.losses, gradients.outputs

    def norms(self):
        return self._gradients.norms()

    def weighted_sum(self, weights):
        if self._model.clock.on:
            self._model.centre.data.fill_(weights.sum())
        return self._gradients.weighted_sum(weights)


class LateEngine(Engine):
    def gradients(self, inputs, targets):
        return Late(OneByOne(self.model, self._loss).gradients(inputs, targets), self.model)


@pytest.mark.parametrize("most", [None, 7])
def test_writes_while_the_sum_is_computed(most):
    model = Writing(nothing)
    with write_error("parameter 'centre'"):
        trainer(model, engine=LateEngine, max_physical_batch=most).check(X, Y)
    model.clock.on = False
    made = trainer(model, engine=LateEngine, max_physical_batch=most)
    made.step(X, Y)
    model.clock.on = True
    with write_error("parameter 'centre'"):
        made.step(X, Y)
    assert not model.centre.any()


def test_gradients_that_a_pass_leaves_do_not_reach_the_optimizer():
    """An optimizer that holds frozen parameters would make a step with them, without noise."""

    def write(model, x, outputs):
        model.centre.grad = -x[-1] / 0.1

    model = Writing(write)
    made = trainer(model, frozen=True)
    made.step(X, Y)
    assert not model.centre.any()
    assert model.centre.grad is None


def test_updates_between_steps_are_no_writes():
    """An average of the parameters is computed from what was released."""
    model = Writing(nothing)
    made = trainer(model)
    for step in range(4):
        made.step(X, Y)
        model.square.data[:3] = 0.9 * model.square.data[:3] + 0.1 * model.linear.weight.data
        model.centre.data = torch.full((4,), float(step))
        model.seen = torch.ones(4)
        model.plain, model.further = torch.ones(4), torch.ones(2)
    assert (made.released, float(model.centre[0]), float(model.seen[0])) == (4, 3.0, 1.0)


# what a pass only stores


def test_tensors_that_a_pass_stores_are_taken_away():
    def store(model, x, outputs):
        model.last = x
        model.plain = x[0]
        model.hidden = (outputs, [outputs])
        model.bank["rows"].append(x)
        model.bank["last"] = x
        model.teacher.append(nn.Linear(2, 2))
        model.begun = True  # numbers stay
        model.clock.calls += 1

    model = Writing(store)
    model.clock.calls, model.hidden = 0, None
    kept = model.plain, model.teacher[0]
    made = trainer(model)
    made.step(X, Y)
    made.evaluate(X, Y)
    assert model.clock.calls > 2
    assert not hasattr(model, "last")
    assert (model.plain, *model.teacher) == kept
    assert (model.hidden, list(model.bank), len(model.bank["rows"]), model.begun) == (None, ["rows"], 1, True)


def test_hooks_that_store_what_they_see():
    model = nn.Sequential(nn.Linear(4, 3))
    model[0].register_forward_hook(lambda module, inputs, output: setattr(module, "last", inputs[0]))
    trainer(model).step(X, Y)
    assert not hasattr(model[0], "last")


def test_an_average_in_a_plain_attribute_is_seen_by_what_it_does():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.mean = nn.Linear(4, 3), torch.zeros(4)

        def forward(self, x):
            self.mean = 0.9 * self.mean + 0.1 * x.detach()[-1]
            return self.linear(x - self.mean)

    with pytest.raises(ValueError, match="beside other records"):
        trainer(Centred()).check(X, Y)


# passes that are no steps


@pytest.fixture
def late():
    """A model that writes in evaluation mode, after it was tried."""

    def made(write):
        model = Writing(write, modes=(False,))
        model.clock.on = False
        made = trainer(model)
        made.step(X, Y)
        model.clock.on = True
        return made

    return made


PASSES = {
    "diagnose": lambda made: made.diagnose(X, Y),
    "diagnose held-out": lambda made: made.diagnose(X, Y, owners=[0] * N),
    "evaluate": lambda made: made.evaluate(X, Y),
    "group losses": lambda made: made._gradients.losses((X, Y), np.arange(N)),
    "confidences": lambda made: confidences(made.model, nn.CrossEntropyLoss(), (X, Y), made.model.linear.weight),
    "predictions": lambda made: Learning(
        model=made.model,
        loss=made._gradients.loss,
        optimizer=made.optimizer,
        schedule=None,
        data=(X, Y),
        batch=4,
        seed=0,
    ).predict(X),
}


@pytest.mark.parametrize("write", [centre, through_data, buffer, counter, other_buffer, plain], ids=name_of)
@pytest.mark.parametrize("passed", PASSES.values(), ids=PASSES)
def test_no_other_pass_leaves_anything(passed, write, late):
    made = late(write)
    before = without_counts(held(made.model))
    with write_error(WRITES[write]):
        passed(made)
    assert without_counts(held(made.model)) == before


def test_losses_that_steer_leave_nothing():
    owners = Owners(of_record=["a", "b"] * (N // 2), epsilon={"a": 2.0, "b": 4.0}, delta=1e-5)
    the_plan = plan_asc(owners, steps=4, expected_batch=12, clip_norm=1.0, every=2)
    model = Writing(through_data, modes=(False,))
    optimizer = torch.optim.SGD(model.linear.parameters(), lr=0.1)
    steering = AdaptiveShares(the_plan, every=2, temperature=1.0)
    made = Trainer(the_plan, model, nn.CrossEntropyLoss(), optimizer, owners=owners, steering=steering)
    model.clock.on = False
    made.step(X, Y)
    made.step(X, Y)
    model.clock.on = True
    with write_error("parameter 'centre'"):
        made.step(X, Y)
    assert not model.centre.any()


@pytest.mark.parametrize("write", [centre, through_data, buffer], ids=name_of)
def test_certify_and_the_audit_of_a_mechanism_see_writes(write):
    for late in (False, True):
        model = Writing(write)
        model.clock.on = not late
        made = trainer(model)
        if late:
            made.step(X, Y)
            model.clock.on = True
        with pytest.raises(ValueError, match=WRITES[write]):
            certify(made, (X, Y), evaluations=2)
        with pytest.raises(ValueError, match=WRITES[write]):
            audit_mechanism(made, 0, runs=100, data=(X, Y))
        assert not model.centre.any()
        assert not model.seen.any()


def test_a_run_directory_holds_no_record(tmp_path):
    """A module that calibrates in evaluation mode: on the old code, model.pt holds record 0."""
    owners = Owners(of_record=[0] * N, epsilon={0: 1.0}, delta=1e-5)
    for write, mode, begins in ((buffer, False, 0), (centre, True, 0), (through_data, True, 3), (buffer, False, 3)):
        the_plan = plan_uniform(owners, steps=6, expected_batch=12, clip_norm=1.0)
        model = Writing(write, modes=(mode,))
        model.clock.on = not begins
        made = Trainer(the_plan, model, nn.CrossEntropyLoss(), torch.optim.SGD(model.linear.parameters(), lr=0.1))

        def watch(_, model=model):
            model.clock.on = True

        place = tmp_path / f"{write.__name__}-{mode}-{begins}"
        with pytest.raises(ValueError, match=WRITES[write]):
            made.fit(
                X,
                Y,
                held_out=HELD_OUT,
                evaluate_every=3,
                checkpoint_every=1,
                watch=watch,
                run=place,
                progress=False,
            )
        assert not (place / "model.pt").exists()
        for path in place.rglob("*.pt"):
            saved = torch.load(path, weights_only=True)["model"]
            assert not saved["centre"].any()
            assert not saved["seen"].any()


# losses and scores


class CentredLoss(nn.Module):
    """The loss of DINO, whose centre is a buffer of the loss."""

    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(3))
        self.clock = SimpleNamespace(on=True)

    def forward(self, outputs, targets):
        if self.clock.on:
            self.center.mul_(0.9).add_(0.1 * outputs.detach()[-1])
        return F.cross_entropy(outputs, targets, reduction="none")


class ReducingLoss(CentredLoss):
    """Has a reduction, so that a copy of it is asked."""

    def __init__(self):
        super().__init__()
        self.reduction = "mean"


class Plain:
    """No module."""

    def __init__(self):
        self.center, self.clock = torch.zeros(3), SimpleNamespace(on=True)

    def __call__(self, outputs, targets):
        return CentredLoss.forward(self, outputs, targets)

    def method(self, outputs, targets):
        return self(outputs, targets)

    def score(self, outputs, targets, losses):
        return self(outputs, targets)


LOSSES = {
    "module": lambda: (loss := CentredLoss(), loss),
    "module with a reduction": lambda: (loss := ReducingLoss(), loss),
    "object": lambda: (loss := Plain(), loss),
    "method": lambda: ((owner := Plain()).method, owner),
}


@pytest.mark.parametrize("engine", [None, OneByOne], ids=str)
@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_losses_that_write(make, engine):
    loss, owner = make()
    with pytest.raises(ValueError, match=r"the loss changes its (buffer|tensor) 'center'"):
        trainer(nn.Linear(4, 3), loss, engine=engine).check(X, Y)
    assert not owner.center.any()
    owner.clock.on = False
    made = trainer(nn.Linear(4, 3), loss, engine=engine)
    made.step(X, Y)
    owner.clock.on = True
    with write_error("the loss changes its (buffer|tensor) 'center'"):
        made.step(X, Y)
    assert not owner.center.any()


@pytest.mark.parametrize("method", [True, False])
def test_scores_that_write(method):
    class Score(Plain):
        def __call__(self, outputs, targets, losses):
            return CentredLoss.forward(self, outputs, targets)

    owner = Plain() if method else Score()
    made = trainer(nn.Linear(4, 3), score=owner.score if method else owner)
    with pytest.raises(ValueError, match="the score changes its tensor 'center'"):
        made.check(X, Y)
    assert not owner.center.any()
    owner.clock.on = False
    made.step(X, Y)
    owner.clock.on = True
    with write_error("the score changes its tensor 'center'"):
        made.step(X, Y)
    assert not owner.center.any()


# layers of torch


WORDS = 50


class Words(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.embedding, self.head = embedding, nn.Linear(8, 2)

    def forward(self, words):
        found = self.embedding(words)
        return self.head(found if found.ndim == 2 else found.mean(1))


def words_of(texts):
    owners = Owners(of_record=[0] * len(texts), epsilon={0: 1.0}, delta=1e-5)
    the_plan = plan_uniform(owners, steps=20, expected_batch=len(texts) // 2, clip_norm=1.0)

    def norms(embedding, **more):
        """Train, and return how long the rows of the table are."""
        model = Words(embedding)
        optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.01)
        made = Trainer(the_plan, model, nn.CrossEntropyLoss(), optimizer, key=1, **more)
        made.fit(texts, np.arange(len(texts)) % 2, progress=False)
        return embedding.weight.detach().norm(dim=1)

    return norms


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("engine", [None, BookKeeping, Functional, OneByOne, Own], ids=str)
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_a_table_does_not_tell_which_words_occur(kind, engine, frozen):
    """With max_norm, the rows of words that somebody uses end at norm 1, the others at 2 or more: on the old code."""
    texts = np.random.default_rng(0).integers(0, WORDS // 2, size=(40, 6))
    torch.manual_seed(0)
    embedding = kind(WORDS, 8, max_norm=1.0).requires_grad_(not frozen)
    before = embedding.weight.detach().clone()
    with pytest.raises(ValueError, match=rf"'embedding' \({kind.__name__}\) has max_norm=1:.*e \* \(1 / e.norm"):
        words_of(texts)(embedding, engine=engine)
    assert torch.equal(embedding.weight, before)


def test_what_is_recommended_instead_of_max_norm():
    class Scaled(nn.Embedding):
        def forward(self, words):
            e = super().forward(words)
            return e * (1 / e.norm(dim=-1, keepdim=True)).clamp(max=1)

    texts = np.random.default_rng(0).integers(0, WORDS // 2, size=(40, 6))
    norms = words_of(texts)(Scaled(WORDS, 8))
    assert norms[: WORDS // 2].max() > 1.5


def parametrized(layer):
    return nn.Sequential(parametrizations.spectral_norm(layer))


@pytest.mark.parametrize("engine", [None, OneByOne], ids=str)
@pytest.mark.parametrize("norm", [lambda layer: nn.Sequential(spectral_norm(layer)), parametrized])
@pytest.mark.filterwarnings("ignore:.*torch.nn.utils.spectral_norm.*:FutureWarning")
def test_spectral_norm_is_refused_with_a_remedy(norm, engine):
    with pytest.raises(ValueError, match=r"buffer .*spectral_norm writes its vectors.*take weight_norm"):
        trainer(norm(nn.Linear(4, 3)), engine=engine).check(X, Y)


@pytest.mark.filterwarnings("ignore:.*torch.ao.quantization.*:DeprecationWarning")
@pytest.mark.parametrize("engine", [None, OneByOne], ids=str)
@pytest.mark.parametrize("kind", ["MinMaxObserver", "MovingAverageMinMaxObserver", "HistogramObserver", "FakeQuantize"])
def test_observers_of_quantization_are_refused(kind, engine):
    quantization = pytest.importorskip("torch.ao.quantization")
    model = nn.Sequential(nn.Linear(4, 3), getattr(quantization, kind)())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match="buffer"):
        trainer(model, engine=engine).check(X, Y)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


class Frozen(nn.BatchNorm1d):
    def train(self, mode=True):
        return super().train(False)


class Caching(nn.Module):
    """Keeps a table of positions in a plain attribute, made when it is first needed."""

    def __init__(self):
        super().__init__()
        self.linear, self.table = nn.Linear(4, 3), None

    def forward(self, x):
        if self.table is None:
            self.table = torch.arange(4.0)
        return self.linear(x + self.table)


def old_weight_norm():
    with pytest.warns(FutureWarning, match="weight_norm"):
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3)))


class Rnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(1, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        self.rnn.flatten_parameters()
        return self.head(self.rnn(x[..., None])[0][:, -1])


def tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 3))
    model[2].weight = model[0].weight
    return model


SERVED = {
    "weight norm": lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 3))),
    "weight norm of before": old_weight_norm,
    "frozen batch norm": lambda: nn.Sequential(nn.Linear(4, 3), Frozen(3)),
    "cache": Caching,
    "lstm": Rnn,
    "tied": tied,
    "dropout": lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 3)),
    "frozen layer": lambda: nn.Sequential(nn.Linear(4, 8).requires_grad_(False), nn.ReLU(), nn.Linear(8, 3)),
    "observer that is off": lambda: nn.Sequential(nn.Linear(4, 3), disabled()),
}


def disabled():
    quantization = pytest.importorskip("torch.ao.quantization")
    layer = quantization.FakeQuantize()
    layer.apply(quantization.disable_observer)
    return layer


@pytest.mark.filterwarnings("ignore:.*torch.ao.quantization.*:DeprecationWarning")
@pytest.mark.parametrize("name", SERVED)
def test_models_that_do_not_write_are_served(name):
    model = SERVED[name]()
    made = trainer(model, max_physical_batch=9)
    for _ in range(3):
        made.step(X, Y)
    made.evaluate(X, Y)
    made.diagnose(X, Y)
    assert made.released == 3


def test_a_cache_that_is_registered_is_served_after_a_synthetic_batch():
    class Registering(Caching):
        def __init__(self):
            super().__init__()
            del self.table

        def forward(self, x):
            if not hasattr(self, "table"):
                self.register_buffer("table", torch.arange(4.0), persistent=False)
            return self.linear(x + self.table)

    model = Registering()
    with pytest.raises(ValueError, match=r"adds the buffer 'table'.*run it once on a synthetic batch"):
        trainer(model).check(X, Y)
    model(torch.zeros(1, 4))
    trainer(model).step(X, Y)


def test_lazy_layers_are_refused_before_a_record_decides_their_form():
    with pytest.raises(ValueError, match="lazy"):
        refuse_mixing(nn.Sequential(nn.LazyLinear(3)))


# snapshots


TENSORS = {
    "float32": lambda: torch.tensor([1.0, float("nan"), -0.0]),
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "float64": lambda: torch.ones(2, 2, dtype=torch.float64),
    "complex": lambda: torch.ones(3, dtype=torch.complex128),
    "bool": lambda: torch.tensor([True, False]),
    "whole": lambda: torch.arange(3) + 1,
    "channels last": lambda: torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "every other": lambda: torch.rand(6)[::2],
    "expanded": lambda: torch.rand(1).expand(4),
    "scalar": lambda: torch.tensor(2.0),
}


@pytest.mark.parametrize("name", TENSORS)
def test_bits_of_every_kind_of_tensor(name):
    model = nn.Module()
    model.register_buffer("values", TENSORS[name]())
    snapshot = Snapshot(model=model)
    values, place, before = model.values, model.values.data_ptr(), model.values.clone()
    for _ in range(2):
        with snapshot:
            pass
        with write_error("buffer 'values'"), snapshot:
            values.data.as_strided((1,), (1,)).zero_()
    assert model.values is values
    assert values.data_ptr() == place
    assert torch.equal(values.nan_to_num(7), before.nan_to_num(7))


def test_zero_is_not_minus_zero():
    model = nn.Module()
    model.register_buffer("values", torch.zeros(3))
    with write_error("buffer 'values'"), Snapshot(model=model):
        model.values.data.neg_()


def test_tensors_without_memory():
    model = nn.Module()
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    model.register_buffer("nothing", torch.zeros(0, 3))
    model.register_buffer("none", None)
    with torch.inference_mode():
        model.register_buffer("inference", torch.ones(3))
    snapshot = Snapshot(model=model)
    with snapshot:
        pass
    with write_error("buffer 'sparse'"), snapshot:
        model.sparse.mul_(2)
    assert torch.equal(model.sparse.to_dense(), torch.eye(3))


def test_other_memory_with_the_same_values_is_no_change():
    """As for the weights of a recurrent layer, which a GPU wants in one piece."""
    model = nn.Linear(2, 2)
    place = model.weight.data_ptr()
    with Snapshot(model=model):
        model.weight.data = model.weight.data.clone()
        model.bias.requires_grad_(True)
    assert model.weight.data_ptr() != place


def test_containers_of_all_kinds_and_long_ones():
    model = nn.Module()
    model.kinds = [deque([torch.zeros(1)]), {torch.zeros(2)}, (torch.zeros(3), {"x": torch.zeros(4)})]
    model.vocabulary = {str(number): number for number in range(LARGEST_CONTAINER + 1)}
    model.itself = [model]
    snapshot = Snapshot(model=model)
    with snapshot:
        model.kinds[0].append(torch.ones(1))
        model.kinds[1].add(torch.ones(1))
        model.kinds[2][1]["y"] = torch.ones(1)
        model.kinds.append(torch.ones(1))
        model.vocabulary["more"] = 1
    assert [len(each) for each in (model.kinds, *model.kinds)] == [3, 1, 1, 2]
    assert (list(model.kinds[2][1]), len(model.vocabulary)) == (["x"], LARGEST_CONTAINER + 2)
    for number in (0, 1):
        with write_error("tensor 'kinds"), snapshot:
            next(iter(model.kinds[number])).add_(1)
    with write_error(r"tensor \"kinds\[2\]\[1\]\['x'\]\""), snapshot:
        model.kinds[2][1]["x"].data.add_(1)
    assert not any(bool(each.any()) for each in (*model.kinds[0], *model.kinds[1], model.kinds[2][0]))


def test_memory_for_values_is_used_again():
    model = nn.Linear(3, 3)
    snapshot = Snapshot(model=model)
    snapshot.take()
    copies = [id(each) for each in snapshot._values._copies]
    for number in range(3):
        model.note = number  # attributes that others set make no difference
        model.weight.data.add_(1)
        with snapshot:
            pass
        assert [id(each) for each in snapshot._values._copies] == copies
