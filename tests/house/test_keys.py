"""Keys and seeds are derived in one module, and no two purposes share a derivation."""

import re
from pathlib import Path

import inosgm
from inosgm._internal import keys

ROOT = Path(inosgm.__file__).parents[1]
ELSEWHERE = {
    "inosgm/_internal/keys.py": "the module",
    "inosgm/audit/ensemble/seeding.py": "computes the seeds of many keys at once; tested against `streams`",
}


def test_no_other_module_derives_keys_or_seeds():
    """A tag, a spawned seed or a seed of several parts anywhere else would be missing from the table."""
    derivation = re.compile(r"person=|spawn_key=|SeedSequence\([^)]|\.spawn\(|default_rng\(\[[^\]]*\*")
    found = {
        path.relative_to(ROOT).as_posix()
        for package in ("inosgm", "ray_jobs")
        for path in (ROOT / package).rglob("*.py")
        if derivation.search(path.read_text())
    }
    assert found == set(ELSEWHERE)


def test_purposes_give_different_bits():
    digests = {purpose.hasher(b"7").digest()[:8] for purpose in keys.Purpose}  # a digest has 8 bytes at least
    assert len(digests) == len(keys.Purpose)


def test_draws_and_streams_of_a_step_give_different_bits():
    microbatches = [(*keys.CHOICES, number) for number in range(4)]
    children = [keys.COINS, keys.NOISE, keys.CHOICES, keys.SHARED_BY_BATCH, *microbatches]
    sequences = [keys.step_sequence(7, 3, child) for child in children] + [draw.sequence(7, 3) for draw in keys.Draw]
    states = {tuple(sequence.generate_state(4)) for sequence in sequences}
    assert len(states) == len(sequences)


def test_without_a_key_no_two_streams_are_the_same():
    states = {tuple(keys.step_sequence(None, 0, keys.NOISE).generate_state(4)) for _ in range(100)}
    assert len(states) == 100
