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
    terms = {"ε, epsilon": EPSILON}
    for study in contents.studies:
        terms |= _of_study(study)
    if contents.audits:
        terms["audit"] = (
            "An attack by somebody who knows more than any outsider would, to see how much a method really shows. It "
            "gives a lower bound: ε is at least that large. It can refute a promise, and never prove one."
        )
        terms["AUC"] = (
            "How often the attack ranks a record that was used above one that was not: 0.5 is guessing, 1 is certainty."
        )
    if contents.answers:
        terms["standard error"] = "How far the noise that hides records typically moves a result."
    return terms


def _of_study(study: TrainedStudy) -> dict[str, str]:
    terms = {
        method.title: f"Training with noise that hides each record; it {method.glossary}."
        for name, method in METHODS.items()
        if any(trained.kind == name for trained in study.methods.values())
    }
    if study.measure == "recall":
        terms["recall"] = (
            f"The share of the held-out records of one {study.who} that a model gets right, class by class, and "
            "averaged over its classes."
        )
        terms["balanced accuracy"] = "The mean recall of all classes: rare ones count as much as common ones."
    terms[f"worst-served {study.who}"] = (
        f"Whoever a run serves worst. That may be another {study.who} in each run: the number is the mean over runs of "
        "whoever each served worst, so it stands in no row of the table."
    )
    if any(len(trained.seeds) > 1 for trained in study.methods.values()):
        terms["seed"] = "Runs with other seeds begin with other parameters: they say how much is luck."
        terms["band, interval"] = "Where a mean over very many seeds would lie, with 95 % confidence."
    return terms
