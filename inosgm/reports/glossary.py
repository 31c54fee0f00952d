"""The words of a page, for those who meet them for the first time."""

from inosgm.reports.contents import Contents
from inosgm.reports.trained import KINDS, Study

METHODS = {
    "dp-sgd": "gives everybody the budget of the strictest",
    "idp-sgd": "gives each its own, and so listens less to those who are strict",
    "ino-sgd": "gives each its own, and has every batch let go of the records that matter least, whoever owns them",
    "asc": "asks now and then, privately, whom it serves badly, and listens more to those at the same price for all",
    "asc-ino": "listens more to those it serves badly, and has every batch let go of the records that matter least",
    "asc-published": "listens more to those it serves badly, with batches of fixed size: its promise is about a record "
    "that is replaced by another",
    "azb": "asks now and then, privately, whom it serves badly, and learns from one of those at a time",
    "azb-prop": "learns from one owner at a time, chosen by whom it serves badly, from more records of larger owners",
    "azb-weak": "learns from one owner at a time with the noise of the largest: it may BREAK what others granted",
    "pdp-sgd": "keeps records by chance in rounds with a threshold each, and everybody pays for every round",
    "pdp-sgd-adaptive": "is PDP-SGD with thresholds that weigh by themselves what they waste",
    "sampling": "keeps records of strict owners by chance, and gives all that are kept one common budget",
    "adapdp": "trains a model in each of two rounds with a threshold of their own, and lets both answer together",
    "individual": "counts for every record what it has really given, and goes on without it when its budget is used up",
    "individual-ino": "counts for every record what it has really given, and lets go of the records that matter least",
    "leave-out": "leaves the strictest out, and gives everybody else the budget of the strictest of them",
    "one-after-another": "learns from one budget after the other, the strictest first",
    "undersample": "gives each its own, and leaves out some records of those who are less strict",
    "lower": "gives each less than its own, part of the way down to the strictest",
    "ipate-upsample": "lets many models vote on public records with noise; records of less strict owners teach several",
    "ipate-weight": "lets many models vote on public records with noise; models of less strict owners count more",
}
"""What methods do with budgets that differ, for those who have never heard of them."""

EPSILON = (
    "How much a result may show about one record: no outcome is more than exp(ε) times as likely with the record as "
    "without it, or the other way round, but for a tiny chance δ. That is 1.6 "
    "times for ε = 0.5, and 148 times for ε = 5: the smaller, the stricter."
)


def meanings(contents: Contents) -> dict[str, str]:
    """Return what the words on a page mean, those that are on it."""
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


def _of_study(study: Study) -> dict[str, str]:
    found = {
        name: f"Training with noise that hides each record; it {METHODS[kind]}."
        for kind, name in KINDS.items()
        if any(one.kind == kind for one in study.methods.values())
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
