"""What is compared: settings, sizes, and every method with the same data, owners, model, seeds and grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inosgm.experiments import METHODS, methods_of
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.sweep_results import Metric


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting of the papers, and what they report of it.

    Attributes:
        name: Its name in `inosgm.datasets.settings`.
        source: The table of a paper that it is from.
        metric: What learning rates are chosen by.
        published: What that table says about some methods, by measure.
        whole: Take all records, where there are many, and not a part of them.
        senseless: Methods that have nothing to do here, because all budgets are the same.
    """

    name: str
    source: str
    metric: Metric
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    whole: bool = False
    senseless: Sequence[str] = ()


SCALE = "idp-sgd scale"
"""IDP-SGD by sensitivities instead of rates: the same method with another plan."""

ACCURACY, AVERAGE, WORST = "accuracy", "balanced_accuracy", "worst_owner"
"""Measures: the share of held-out records that is right, its mean over groups, and that of the worst group."""


def _accuracies(**of_method: float) -> dict[str, dict[str, float]]:
    """Return accuracies by method, whose dashes Python writes as underscores."""
    return {name.replace("_", "-"): {ACCURACY: value} for name, value in of_method.items()}


_ASC = {"asc-published": (0.592, 0.845), "dp-sgd": (0.204, 0.848)}
_AZB = {"azb": (0.008, 0.116), "azb-prop": (0.036, 0.170), "azb-weak": (0.072, 0.483)}

SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            name="UM",
            source="ASC, Table 1",
            metric=Metric.worst_owner,
            whole=True,
            senseless=("leave-out",),
            published={name: {WORST: worst, AVERAGE: mean} for name, (worst, mean) in {**_ASC, **_AZB}.items()},
        ),
        Setting(
            name="IDP_34_43_23",
            source="IDP-SGD, Tables 2, 13, 17",
            metric=Metric.accuracy,
            published={SCALE: {ACCURACY: 0.9778}}
            | _accuracies(dp_sgd=0.9675, idp_sgd=0.9781, leave_out=0.976, one_after_another=0.974, ipate_weight=0.9527),
        ),
        Setting(
            name="IDP_54_37_9",
            source="IDP-SGD, Tables 2, 13, 17",
            metric=Metric.accuracy,
            published={SCALE: {ACCURACY: 0.9754}}
            | _accuracies(dp_sgd=0.9675, idp_sgd=0.976, leave_out=0.971, one_after_another=0.973, ipate_weight=0.9574),
        ),
        Setting(
            name="PDP_K_MINUS",
            source="PDP-SGD, Table 1",
            metric=Metric.accuracy,
            published=_accuracies(
                dp_sgd=0.9042, sampling=0.9257, adapdp=0.9257, pdp_sgd=0.9465, pdp_sgd_adaptive=0.9454
            ),
        ),
        Setting(
            name="PDP_K_0",
            source="PDP-SGD, Table 1",
            metric=Metric.accuracy,
            published=_accuracies(
                dp_sgd=0.9042, sampling=0.9250, adapdp=0.9278, pdp_sgd=0.9519, pdp_sgd_adaptive=0.9505
            ),
        ),
        Setting(
            name="PDP_K_PLUS",
            source="PDP-SGD, Table 1",
            metric=Metric.accuracy,
            published=_accuracies(
                dp_sgd=0.9042, sampling=0.9248, adapdp=0.9252, pdp_sgd=0.9520, pdp_sgd_adaptive=0.9486
            ),
        ),
    )
}
"""The settings of the study, by name."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large everything is.

    Attributes:
        base: What all methods have in common, as a YAML file would hold it; owners are the setting's.
        own: What some methods have of their own, by path of key: those that do not draw small batches, for example.
        rates: The learning rates that each method is tried with.
        subset: How many records settings take that do not take all.
    """

    base: Mapping[str, Any]
    own: Mapping[str, Mapping[str, Any]]
    rates: Sequence[float]
    subset: int | None

    def configs(self, setting: Setting, methods: Sequence[str], root: str | None = None) -> dict[str, TrainingConfig]:
        """Return the configuration of each method on a setting."""
        subset = None if setting.whole else self.subset
        data, owners = {**self.base["data"], "root": root, "subset": subset}, {"setting": setting.name}
        config = TrainingConfig.from_dict({**self.base, "data": data, "owners": owners})
        made = {}
        for name in (name for name in methods if name not in setting.senseless):
            changes = {"plan.method": "scale"} if name == SCALE else {}
            of_file = config.changed(changes)
            (one,) = methods_of(of_file, ["idp-sgd" if name == SCALE else name]).values()
            made[name] = one.changed(self.own.get(name, {}))
        return made


def sized(
    data: str,
    *,
    steps: int,
    batch: int,
    public: int,
    teachers: int,
    whole: int,
    rates: Sequence[float],
    subset: int | None = None,
) -> Size:
    """Return a size: an MLP with 32 hidden units, plain SGD, looked at only when it is trained.

    Args:
        data: The data set.
        steps: Steps of all methods but those of `own`.
        batch: Records in a batch, on average.
        public: How many of the held-out records are public; teachers of IPATE vote about them.
        teachers: How many teachers.
        whole: Steps of methods that take all records in each.
        rates: The learning rates.
        subset: How many training records there are where not all are taken.
    """
    plan = {"method": "sample", "steps": steps, "expected_batch": batch, "clip_norm": 1.0}
    asked = {"teachers": {"count": teachers, "queries": public}, "steering": {"every": -(-steps // 15)}}
    votes = {"plan.steps": min(steps, 60), "plan.expected_batch": min(batch, 64)}
    return Size(
        base={
            "data": {"name": data, "public": public},
            "model": {"name": "mlp", "options": {"widths": [32], "activation": "tanh"}},
            "plan": {**plan, **asked},
            "tail": {"kind": "linear", "fraction": 0.5},
            "optimizer": {"name": "SGD", "lr": rates[0]},
            "training": {"evaluate_every": steps},
            "key": 0,  # repeatable, and so not private: for studies of public data
        },
        own={
            "individual": {"plan.steps": whole},
            "individual-ino": {"plan.steps": whole},
            "ipate-upsample": votes,
            "ipate-weight": votes,
        },
        rates=rates,
        subset=subset,
    )


STUDY = sized(
    "mnist", steps=300, batch=512, public=60, teachers=100, whole=40, rates=(3.0, 1.0, 0.3, 9.0), subset=10_000
)
"""What docs/results shows: MNIST. Of rates that tie, the first is taken."""

EMBEDDED = sized("mnist5k", steps=300, batch=256, public=20, teachers=40, whole=40, rates=(3.0, 1.0, 0.3, 9.0))
"""The same with 4,000 + 1,000 images that come with an installed library: no files, and less of everything."""

SMALL = sized("digits", steps=20, batch=64, public=10, teachers=20, whole=5, rates=(1.0,))
"""To see that everything works, not for results."""

METHOD_NAMES = (*METHODS, SCALE)
"""All that is compared."""
