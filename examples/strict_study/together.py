"""Many models that share their batches: those of one seed whose plans have the same sample rates.

A batch depends on the sample rates and on the key, not on learning rates, tails or strengths. So all these models can
take their batches from memory together, and one matrix product serves them all: about five times faster than one
`Trainer` after another. Each model equals, up to rounding, the one that a `Trainer` makes with the same key
(tests/house/test_strict_study.py compares them). Coins, order, weights, clipping and noise are the library's.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from examples.strict_study.data import Records
from examples.strict_study.points import Point, clip_norms, tail_of
from inosgm import Ascending, Descending, Order, Plan, RandomOrder
from inosgm.mechanism.clipping import ScaleClipped
from inosgm.mechanism.noise import streams
from inosgm.mechanism.sampling import PoissonSampler
from inosgm.mechanism.tails import tail_weights

ORDERS: dict[str, Order] = {"descending": Descending(), "ascending": Ascending(), "random": RandomOrder(0)}

Watch = Callable[[int, "Together"], None]


class Together:
    """Models of one architecture, trained on the same batches. NOT PRIVATE: the noise is a function of the seed.

    Args:
        models: One network of linear layers with tanh between them for each point.
        points: What each model is trained with.
        plans: The plan of each point; all have the same sample rates.
        priors: The logarithm of the class prior of each point.
        records: The records.
        owners: The position in the plan of the owner of each training record.
        momentum: Of SGD.
        key: Decides batches and noise.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        points: Sequence[Point],
        plans: Sequence[Plan],
        priors: Sequence[np.ndarray],
        records: Records,
        owners: np.ndarray,
        momentum: float,
        key: int,
    ) -> None:
        if any(not np.array_equal(plan.sample_rates, plans[0].sample_rates) for plan in plans):
            raise ValueError("plans must have the same sample rates: models share batches")
        self._points, self._plans, self._records, self._owners = list(points), list(plans), records, owners
        self._momentum, self._key, self._count = momentum, key, len(points)
        every = [list(model.parameters()) for model in models]
        self.parameters = [torch.stack([p.detach() for p in same]) for same in zip(*every, strict=True)]
        self._velocity = [torch.zeros_like(p) for p in self.parameters]
        self._rates = torch.tensor([point.rate for point in points])
        self._scales = torch.tensor([plan.noise_scale for plan in plans], dtype=torch.float32)
        inside = np.stack([p.inside * prior for p, prior in zip(points, priors, strict=True)])
        self._offsets = torch.from_numpy(inside).float()[:, None]
        self._bounds = np.stack([plan.sensitivities for plan in plans])
        self._clips = np.stack([clip_norms(point, bounds) for point, bounds in zip(points, self._bounds, strict=True)])
        self._tails = [(tail_of(p, plan), ORDERS[p.order]) for p, plan in zip(points, plans, strict=True)]
        self._sampler = PoissonSampler(plans[0].sample_rates, owners)
        decay = torch.tensor([point.averaging for point in points])
        self._decay = decay if bool(decay.any()) else None
        self.averages = [p.clone() for p in self.parameters] if self._decay is not None else self.parameters

    def train(self, steps: int, watch: Watch | None = None) -> None:
        """Make the steps of the plans.

        Args:
            steps: How many.
            watch: Called with the number of steps done and this object after each.
        """
        for step in range(steps):
            self._step(step)
            if watch is not None:
                watch(step + 1, self)

    def _step(self, step: int) -> None:
        coins, noise = streams(self._key, step)
        batch = self._sampler.draw(coins)
        inputs = self._records.x[torch.from_numpy(batch)]
        given, output_grads, losses = self._gradients(inputs, self._records.y[torch.from_numpy(batch)])
        norms = torch.zeros(self._count, len(batch), dtype=torch.float64)
        for index, (values, grads) in enumerate(zip(given, output_grads, strict=True)):
            squares = self._records.squares[batch] if index == 0 else values.double().square().sum(2)
            norms += grads.double().square().sum(2) * (squares + 1)
        factors = self._factors(norms.sqrt_().numpy(), losses.double().numpy(), batch, step)
        weights = torch.from_numpy(factors).float()[:, :, None]
        divisor = self._plans[0].expected_batch
        for index, (values, grads) in enumerate(zip(given, output_grads, strict=True)):
            grads = grads * weights
            if index == 0:
                flat = grads.transpose(1, 2).reshape(-1, len(batch))
                total = (flat @ values).view(self._count, -1, values.shape[1])
            else:
                total = grads.transpose(1, 2) @ values
            for place, value in ((2 * index, total), (2 * index + 1, grads.sum(1))):
                self._update(place, value, noise, divisor)

    def _update(self, place: int, total: Tensor, noise: np.random.Generator, divisor: float) -> None:
        """Add the noise to the sums of one parameter, and let SGD use them."""
        parameter, velocity = self.parameters[place], self._velocity[place]
        drawn = torch.from_numpy(noise.standard_normal(tuple(parameter.shape[1:]), dtype=np.float32))
        for model in range(self._count):
            velocity[model].mul_(self._momentum).add_(total[model], alpha=1 / divisor)
            velocity[model].add_(drawn, alpha=float(self._scales[model]) / divisor)
            parameter[model].add_(velocity[model], alpha=-float(self._rates[model]))
            if self._decay is not None:
                self.averages[place][model].lerp_(parameter[model], 1 - float(self._decay[model]))

    def _gradients(self, inputs: Tensor, targets: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return the inputs of each layer, the gradients of its outputs (model, record, number), and the losses."""
        given, value = [inputs], self._first(self.parameters, inputs)
        for weight, bias in self._later(self.parameters):
            value = torch.tanh(value)
            given.append(value)
            value = torch.baddbmm(bias[:, None], value, weight.transpose(1, 2))
        logits = torch.log_softmax(value + self._offsets, dim=2)
        chosen = targets.expand(self._count, -1)[:, :, None]
        losses = -logits.gather(2, chosen)[:, :, 0]
        grads = logits.exp_()
        grads.scatter_add_(2, chosen, torch.full_like(chosen, -1, dtype=grads.dtype))
        output_grads = [grads]
        for values, (weight, _) in zip(given[:0:-1], reversed(list(self._later(self.parameters))), strict=True):
            output_grads.insert(0, (output_grads[0] @ weight) * (1 - values.square()))
        return given, output_grads, losses

    def _factors(self, norms: np.ndarray, losses: np.ndarray, batch: np.ndarray, step: int) -> np.ndarray:
        """Return the factor of every record in the sum of every model."""
        bounds, rho = self._bounds[:, self._owners[batch]], np.ones_like(losses)
        for tail, order in set(self._tails):
            rows = [row for row, other in enumerate(self._tails) if other == (tail, order)]
            if not tail.length:
                continue
            ids = np.broadcast_to(batch, (len(rows), batch.size))
            there = np.ones(ids.shape, dtype=bool)
            ranking = order.at(step, self._key).rankings(losses[rows], ids, ids, there)[:, ::-1]
            some = np.ones_like(losses[rows])
            found = tail_weights(np, np.take_along_axis(bounds[rows], ranking, 1), tail)
            np.put_along_axis(some, ranking[:, : found.shape[1]], found, 1)
            rho[rows] = some
        clips = self._clips[:, self._owners[batch]]
        return np.asarray(ScaleClipped().factors(norms, clips, rho) * (bounds / clips))

    def logits(self, inputs: Tensor) -> Tensor:
        """Return the logits of records: (model, record, class)."""
        value = self._first(self.averages, inputs)
        for weight, bias in self._later(self.averages):
            value = torch.baddbmm(bias[:, None], torch.tanh(value), weight.transpose(1, 2))
        return value

    def _first(self, parameters: list[Tensor], inputs: Tensor) -> Tensor:
        weight, bias = parameters[:2]
        return (inputs @ weight.flatten(0, 1).T).view(len(inputs), self._count, -1).transpose(0, 1) + bias[:, None]

    def _later(self, parameters: list[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(parameters[2::2], parameters[3::2], strict=True)
