"""The glossary of a page."""

from inosgm.methods.registry import METHODS
from inosgm.reports.contents import Contents
from inosgm.reports.trained import TrainedStudy

EPSILON = (
    "How much a result may show about one record: no outcome is more than exp(ε) times as likely with the record as "
    "without it, or the other way round, but for a tiny chance δ. That is 1.6 "
    "times for ε = 0.5, and 148 times for ε = 5: the smaller, the stricter."
)


def meanings(contents: Contents) -> dict[str, str]:
    """Return the definitions of the terms that occur on a page."""
    found = {"ε, epsilon": EPSILON}
    for study in contents.studies:
        found |= _of_study(study)
    if contents.audits:
        found["audit"] = (
            "An attack by somebody who knows more than any outsider would, to see how much a method really shows. It "
            "gives a lower bound: ε is at least that large. It can refute a promise, and never prove one."
        )
        found["AUC"] = (
            "How often the attack ranks a record that was used above one that was not: 0.5 is guessing, 1 is certainty."
        )
    if contents.answers:
        found["standard error"] = "How far the noise that hides records typically moves a result."
    return found


def _of_study(study: TrainedStudy) -> dict[str, str]:
    found = {
        method.title: f"Training with noise that hides each record; it {method.glossary}."
        for name, method in METHODS.items()
        if any(one.kind == name for one in study.methods.values())
    }
    if study.measure == "recall":
        found["recall"] = (
            f"The share of the held-out records of one {study.who} that a model gets right, class by class, and "
            "averaged over its classes."
        )
        found["balanced accuracy"] = "The mean recall of all classes: rare ones count as much as common ones."
    found[f"worst-served {study.who}"] = (
        f"Whoever a run serves worst. That may be another {study.who} in each run: the number is the mean over runs of "
        "whoever each served worst, so it stands in no row of the table."
    )
    if any(len(one.seeds) > 1 for one in study.methods.values()):
        found["seed"] = "Runs with other seeds begin with other parameters: they say how much is luck."
        found["band, interval"] = "Where a mean over very many seeds would lie, with 95 % confidence."
    return found
