"""Batches and tails that several test modules draw from."""

import numpy as np
from hypothesis import strategies as st

from inosgm import BetaTail, HardTail, LinearTail, NoTail, StepTail, TableTail

lengths = st.one_of(st.just(0.0), st.floats(0.01, 50.0))
shapes = st.floats(0.3, 50.0)


@st.composite
def falling(draw):
    """A non-increasing list in [0, 1]."""
    return sorted(draw(st.lists(st.floats(0, 1), min_size=1, max_size=6)), reverse=True)


@st.composite
def table_tails(draw):
    importances = draw(falling())
    gaps = draw(st.lists(st.one_of(st.just(0.0), st.floats(0.01, 10.0)), min_size=len(importances) - 1, max_size=9))
    return TableTail([0.0, *np.cumsum(gaps[: len(importances) - 1])], importances)


tails = st.one_of(
    st.just(NoTail()),
    st.builds(HardTail, lengths),
    st.builds(LinearTail, lengths),
    st.builds(StepTail, falling(), lengths),
    st.builds(BetaTail, shapes, shapes, lengths),
    table_tails(),
)


@st.composite
def batches(draw, min_size=0, max_size=40):
    """Scores with ties, NaNs and infinities, and sensitivities over six orders of magnitude."""
    n = draw(st.integers(min_size, max_size))
    scores = draw(
        st.lists(
            st.one_of(st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf]), st.floats(-5, 5)),
            min_size=n,
            max_size=n,
        )
    )
    exponents = draw(st.lists(st.one_of(st.just(0.0), st.floats(-3, 3)), min_size=n, max_size=n))
    return np.array(scores, dtype=float), 10.0 ** np.array(exponents, dtype=float)
