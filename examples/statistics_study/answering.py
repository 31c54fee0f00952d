"""The ways of answering a question: ours, with individual budgets and without, and what a user would do instead."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from examples.statistics_study import excess, opendp_peer
from examples.statistics_study.questions import Question
from examples.statistics_study.ways import (
    EACH_ONCE,
    OPENDP,
    OPENDP_CENTRED,
    STRATIFIED,
    STRICTEST,
    WEIGHTED,
    WITHOUT_ORDER,
)
from inosgm import Owners, Plan, plan_scale, plan_uniform
from inosgm.statistics import PROCEDURES, Estimate
from inosgm.statistics.answering import ask, keys_for, plans_for
from inosgm.statistics.queries import Query

OURS: dict[str, Callable[..., Any]] = {
    EACH_ONCE: plan_scale,
    WEIGHTED: plan_scale,
    STRATIFIED: plan_scale,
    STRICTEST: plan_uniform,
    WITHOUT_ORDER: plan_scale,
}
PEERS = {
    (OPENDP, "sum"): opendp_peer.total,
    (OPENDP, "count"): opendp_peer.total,
    (OPENDP, "mean"): opendp_peer.mean,
    (OPENDP_CENTRED, "sum"): opendp_peer.centred_total,
    (OPENDP_CENTRED, "count"): opendp_peer.centred_total,
    (OPENDP_CENTRED, "mean"): opendp_peer.centred_mean,
}
WAYS = (*OURS, OPENDP_CENTRED, OPENDP)


def answerable(question: Question, way: str) -> bool:
    """Say whether one of our ways answers a question."""
    if way == WITHOUT_ORDER:
        return question.statistic == "upper-tail-mean"
    return way in (EACH_ONCE, WEIGHTED, STRICTEST) or (way == STRATIFIED and question.stratified)


def answers(question: Question, data: np.ndarray, owners: Owners, way: str, releases: int) -> np.ndarray:
    """Return many releases of one statistic by one of our ways, a row each.

    Noise is keyed by what is asked and how often it was asked before: reproducible, and so not private. That is right
    for a study of public data only.
    """
    query = excess.WITHOUT_ORDER if way == WITHOUT_ORDER else PROCEDURES[question.statistic]
    more = {STRATIFIED: {"stratified": True}, WEIGHTED: {"assume_alike": True}}.get(way, {})
    parameters = {**question.parameters, **more}
    keys = [key_of(question, owners, way, number) for number in range(releases)]
    if query.rounds(**parameters) == (1,):
        found = released(query, parameters, data, owners, OURS[way], keys)
    else:
        found = [ask(query, data, owners, planner=OURS[way], key=key, **parameters) for key in keys]
    return np.array([question.read(data, question.answer(estimate)) for estimate in found])


def released(
    query: Query,
    parameters: Mapping[str, Any],
    data: np.ndarray,
    owners: Owners,
    planner: Callable[..., Plan],
    keys: Sequence[int],
) -> list[Estimate]:
    """Release a statistic of one round with many keys, as `ask` would: the sum, in which everybody is, is made once."""
    (plan,) = plans_for(query, parameters, owners, planner=planner)
    stage = next(query.stages(**parameters))
    stage.statistic(plan, **stage.parameters).check(data)
    whole = stage.statistic(plan, **stage.parameters).part(data, owners.of_record, 0)
    found = []
    for key in keys:
        (noise,) = keys_for(key, query, parameters, [plan])
        statistic = stage.statistic(plan, key=noise, **stage.parameters)
        statistic.observe(statistic.release(whole).value)
        found.append(statistic.estimate())
    return found


def by_peer(question: Question, data: np.ndarray, owners: Owners, way: str, releases: int) -> np.ndarray | None:
    """Return many releases at the strictest budget by another library, a row each; None if it has no such answer.

    Its noise is its own, and new every time.
    """
    peer = PEERS.get((way, question.statistic))
    if peer is None or not opendp_peer.AVAILABLE:
        return None
    strictest = float(owners.epsilon.min()), float(owners.delta.min())
    bounds = question.parameters.get("bounds", (0.0, 1.0))  # a count has zeros and ones
    return peer(data, bounds, *strictest).releases(releases)[:, None]


def key_of(question: Question, owners: Owners, way: str, number: int) -> int:
    """Return the key of one release: another one for everything that differs."""
    asked = f"{question.statistic} {question.table} {question.of} {question.parameters}"
    what = f"{asked} {owners.epsilon.tolist()} {owners.of_record[:1000].tolist()} {way} {number}"
    return int.from_bytes(blake2b(what.encode(), digest_size=12).digest(), "little")
