"""What is run: every case of the study, by design and not by hand."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import product


@dataclass(frozen=True, kw_only=True, order=True)
class Arm:
    """One of the things that are compared: a plan, and how much of a batch is given up.

    Attributes:
        plan: "sample" or "scale", or "uniform" for DP-SGD at the strictest budget.
        accountant: "rdp", as in the paper, or "pld".
        tail: The fraction of the expected total sensitivity in the (linear) tail; 0 is none.
    """

    plan: str
    accountant: str
    tail: float = 0.0

    @property
    def method(self) -> str:
        """What the papers call it."""
        if self.plan == "uniform":
            return "DP-SGD"
        return f"INO-SGD {self.tail:g}" if self.tail else "IDP-SGD"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training run; its result is a function of this and of the data.

    Attributes:
        setting: Who owns which records, by name.
        arm: What is done.
        steps: Steps of the plan.
        expected_batch: Records in a batch, on average.
        clip_norm: The mean sensitivity of a record.
        learning_rate: Of plain SGD.
        held_out: How many of the held-out records are looked at; None for all.
        seed: Decides initial parameters, coins and noise: the same for every arm, so arms can be compared in pairs.
    """

    setting: str
    arm: Arm
    steps: int
    expected_batch: int
    clip_norm: float
    learning_rate: float
    held_out: int | None
    seed: int

    @property
    def id(self) -> str:
        """A name for files: for people, and then for sure."""
        arm = self.arm
        digest = blake2b(json.dumps(asdict(self), sort_keys=True).encode(), digest_size=6).hexdigest()
        point = f"lr{self.learning_rate:g}-clip{self.clip_norm:g}-seed{self.seed}"
        return f"{self.setting}-{arm.plan}-{arm.accountant}-tail{arm.tail:g}-{point}-{digest}"


@dataclass(frozen=True, kw_only=True)
class Design:
    """What is run of one setting.

    Every arm is tuned on the same grid, with a seed of its own, by the balanced accuracy on held-out data at the end of
    training. Unless all of them are `tuned`, tails take over what was found for the tail in the middle.

    Attributes:
        setting: Its name.
        steps: Steps of every run.
        expected_batch: Records in a batch, on average.
        lengths: The grid, first axis: learning rate times clip norm, how far a step can lead.
        clip_norms: The grid, second axis.
        plans: Pairs of plan and accountant.
        tails: The tail fractions of INO-SGD.
        tune_every_tail: Whether each of them is tuned, or the middle one for all.
        held_out: How many held-out records are looked at; None for all.
        fixed: Pairs of clip norm and learning rate with which every arm is run besides, tuned or not.
        seeds: Of the runs that count.
        tuning_seed: Of those that choose.
    """

    setting: str
    steps: int
    expected_batch: int
    lengths: tuple[float, ...]
    clip_norms: tuple[float, ...]
    plans: tuple[tuple[str, str], ...] = tuple(product(("sample", "scale"), ("rdp", "pld")))
    tails: tuple[float, ...] = (0.3, 0.5, 0.7)
    tune_every_tail: bool = True
    held_out: int | None = None
    fixed: tuple[tuple[float, float], ...] = ()
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    tuning_seed: int = 0

    def arms(self) -> list[Arm]:
        """Return all arms: DP-SGD once per accountant, the others once per plan."""
        accountants = dict.fromkeys(accountant for _, accountant in self.plans)
        uniform = [Arm(plan="uniform", accountant=accountant) for accountant in accountants]
        return uniform + [
            Arm(plan=plan, accountant=accountant, tail=tail)
            for plan, accountant in self.plans
            for tail in (0.0, *self.tails)
        ]

    def tuned_as(self, arm: Arm) -> Arm:
        """Return the arm whose learning rate and clip norm an arm takes: itself, unless it is a tail that borrows."""
        if self.tune_every_tail or not arm.tail:
            return arm
        return Arm(plan=arm.plan, accountant=arm.accountant, tail=sorted(self.tails)[len(self.tails) // 2])

    def grid(self, arm: Arm) -> list[Case]:
        """Return the runs that choose the learning rate and clip norm of an arm."""
        points = product(self.clip_norms, self.lengths)
        return [self.case(arm, clip, length / clip, self.tuning_seed) for clip, length in points]

    def tuning(self) -> Iterator[Case]:
        """Yield the runs that choose, for all arms."""
        for arm in dict.fromkeys(map(self.tuned_as, self.arms())):
            yield from self.grid(arm)

    def at(self, point: tuple[float, float], arm: Arm) -> list[Case]:
        """Return the runs of an arm with a clip norm and a learning rate, one per seed."""
        return [self.case(arm, *point, seed) for seed in self.seeds]

    def case(self, arm: Arm, clip_norm: float, learning_rate: float, seed: int) -> Case:
        """Return one run."""
        return Case(
            setting=self.setting,
            arm=arm,
            steps=self.steps,
            expected_batch=self.expected_batch,
            clip_norm=clip_norm,
            learning_rate=float(f"{learning_rate:.6g}"),
            held_out=self.held_out,
            seed=seed,
        )
