"""All derivations of keys, seeds and identifying digests, each with its own tag: the table of purposes.

Two purposes that shared a tag and an input would share their noise or their names, so every derivation is made here and
nowhere else. Results are a function of these bytes: a tag is never changed, and never reused for something new. The one
derivation that is repeated elsewhere is `inosgm.audit.ensemble.seeding`, which computes `step_sequence` for many keys
at once and is tested against it.
"""

import os
import secrets
from enum import Enum
from hashlib import blake2b
from typing import Any, Self

import numpy as np
from numpy.random.bit_generator import ISeedSequence


class Purpose(Enum):
    """The purpose of a digest: the personalisation tag of BLAKE2b, and the size of the digest in bytes."""

    SIDE_KEY = b"inosgm beside", 16  # key of the values that are released beside the steps of a training run
    REVISION_KEY = b"inosgm revision", 16  # key of a training run whose plan was revised: the sums are other ones
    WORKERS_KEY = (
        b"inosgm workers",
        16,
    )  # secret of a step for random numbers of a model on workers: neither coins nor noise
    CONFIG_KEY = b"inosgm config", 16  # key of a training run, from `key:` of the file and everything else in it
    STAGE_KEY = b"inosgm stage", 16  # key of one stage of a statistic, from the key, the question and the plan
    SHADOW_KEY = b"inosgm shadow", 16  # key of one shadow model of an audit
    NOISE_NAME = b"inosgm noise", 16  # name of a noise stream in ledgers: two jobs with the same noise are the same job
    SAMPLING_NAME = b"inosgm coins", 16  # public name of the secret that decides which records a sum samples
    TEACHER_KEY = b"inosgm teachers", 16  # key of the hash that assigns records to the teachers of IPATE
    CONTRIBUTION_ORDER = b"inosgm bounding", 16  # secret of the order in which records of several people are chosen
    RECORD_ID = b"inosgm record", 8  # id of a record, from its content
    JOB_ID = b"inosgm job", 16  # id of a job, from its spec
    PLAN_ID = b"inosgm plan", 16  # digest of a plan, from its JSON
    FEATURES_ID = b"inosgm features", 16  # what the features of a data set are a function of
    FROZEN_ID = b"inosgm frozen", 16  # digest of the frozen parameters of a model, which a checkpoint leaves out
    RECORDS_ID = b"inosgm records", 16  # digest of some records, compared between ranks that hold them, never stored
    CODE_ID = b"inosgm code", 8  # version of the code, from its source files
    STREAM_SECRET = b"inosgm stream", 32  # secret of the cryptographic stream of one use of a secret key in a step
    # The next two have always shared their tag, and keep it because stored sums and ledgers hold the bits. They
    # cannot collide: BLAKE2b mixes the size of the digest into its first state, and the sizes differ.
    SUM_SIGNATURE = b"inosgm sum", 16  # what parts of one streaming sum have in common, so that they can be merged
    SUM_DIGEST_KEY = b"inosgm sum", 32  # key of the digests by which a ledger knows the sum that noise was added to

    def hasher(self, content: bytes = b"") -> blake2b:
        """Return a hash object that more content may be added to."""
        tag, size = self.value
        return blake2b(content, digest_size=size, person=tag)

    def hex(self, text: str) -> str:
        """Return the digest of a text in hexadecimal."""
        return self.hasher(text.encode()).hexdigest()

    def key(self, text: str) -> int:
        """Return the digest of a text as a key.

        >>> Purpose.SIDE_KEY.key("7") == Purpose.REVISION_KEY.key("7")
        False
        """
        return int.from_bytes(self.hasher(text.encode()).digest())

    def key_from(self, key: int, *numbers: int) -> int:
        """Return the key that follows from another one, and from numbers: a secret one from a secret one.

        >>> Purpose.SIDE_KEY.key_from(7) == Purpose.SIDE_KEY.key("7")
        True
        """
        derived = self.key(" ".join(str(int(number)) for number in (key, *numbers)))
        return SecretKey(derived) if isinstance(key, SecretKey) else derived


class SecretKey(int):
    """A key that the operating system has drawn and nobody was told: its coins and noise are cryptographic streams.

    A key that a user gives makes the streams of a fast generator, which results of earlier versions are a function of.

    >>> SecretKey.from_text(SecretKey(5).to_text()) == SecretKey(5), type(SecretKey.from_text("5")).__name__
    (True, 'int')
    """

    @classmethod
    def drawn(cls) -> Self:
        """Return a new one, of 128 bits."""
        return cls(secrets.randbits(128))

    def to_text(self) -> str:
        """Return what files hold."""
        return f"{_SECRET}{int(self)}"

    @staticmethod
    def from_text(text: str) -> int:
        """Return the key that a file holds; a number alone, as earlier versions wrote it, is a fast one."""
        return SecretKey(text.removeprefix(_SECRET)) if text.startswith(_SECRET) else int(text)


_SECRET = "aes "


class Draw(Enum):
    """A draw from a public seed: the label that is appended to the seed. No noise comes from here."""

    PUBLIC = b"public"  # which held-out records become public records without classes
    SUBSET = b"subset"  # which training records `data.subset` keeps
    SEARCH = b"search"  # values of one point of a random search
    MEMBERS = b"members"  # which records a shadow model is trained on
    CANARIES = b"canaries"  # which records are made to stand out in an audit
    MISLABELLED = b"mislabelled"  # the wrong classes that canaries get
    SHADOW_MODEL = b"model"  # first parameters of a shadow model
    OWNER_SHARES = b"shares"  # which owner of a setting gets which records
    OWNER_CLASSES = b"classes"  # which owner of a setting gets which class
    OWNER_BUDGETS = b"budgets"  # epsilons of a setting with one owner per record
    KEPT_RECORDS = b"kept"  # which records a setting keeps
    FLIPPED_LABELS = b"flips"  # which labels a setting flips

    def sequence(self, *numbers: int) -> np.random.SeedSequence:
        """Return the seed sequence of this draw, given a seed and whatever else tells draws apart."""
        return np.random.SeedSequence([*numbers, *self.value])

    def generator(self, *numbers: int) -> np.random.Generator:
        """Return the generator of this draw."""
        return np.random.default_rng(self.sequence(*numbers))


# Children of (key, step). SeedSequence tells (step, 2) from (step, 2, number): every further word is mixed in.
COINS, NOISE, CHOICES, SHARED_BY_BATCH, RECORDS_OF_UNITS = (0,), (1,), (2,), (3,), (4,)


class SystemEntropy(ISeedSequence):
    """Gives a generator of numpy its whole first state from the operating system, other bits at every call.

    numpy's own way, a SeedSequence without arguments, stretches 128 bits and takes four times as long.
    """

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """Return so many random words."""
        return np.frombuffer(os.urandom(n_words * np.dtype(dtype).itemsize), dtype=dtype)


def step_sequence(key: int | None, step: int, child: tuple[int, ...]) -> ISeedSequence:
    """Return the seed sequence of one use of a key in a step; without a key, one from the operating system."""
    return SystemEntropy() if key is None else np.random.SeedSequence(key, spawn_key=(step, *child))


def stream_secret(key: SecretKey, step: int, child: tuple[int, ...]) -> bytes:
    """Return the secret of the cryptographic stream of one use of a secret key in a step."""
    return Purpose.STREAM_SECRET.hasher(f"{int(key)} {step} {child}".encode()).digest()


def batch_seed(key: int | None, step: int) -> int:
    """Return the seed of random numbers of a model that all records of a logical batch share."""
    return seed_of(step_sequence(key, step, SHARED_BY_BATCH))


def unit_draw_secret(key: int, step: int) -> bytes:
    """Return the 16 bytes whose hashes choose the records of each unit that take part in a step."""
    return step_sequence(key, step, RECORDS_OF_UNITS).generate_state(4, np.uint32).astype("<u4").tobytes()


def microbatch_seed(key: int | None, step: int, number: int) -> int:
    """Return the seed of random numbers of a model, such as dropout, in one micro-batch of a step."""
    return seed_of(step_sequence(key, step, (*CHOICES, number)))


def job_sequence(seed: int, index: int) -> np.random.SeedSequence:
    """Return the seed sequence of a job: the child, by index, of the seed of its configuration."""
    return np.random.SeedSequence(seed, spawn_key=(index,))


def model_sequence(seed: int | None) -> np.random.SeedSequence:
    """Return the seed sequence of a model's first parameters, and of one model per stage."""
    return np.random.SeedSequence(seed)


def order_seed(*numbers: int) -> int:
    """Return the seed of a random order: of a public seed alone, or with the step and a secret of the mechanism."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def teacher_batches(seed: int, step: int) -> np.random.Generator:
    """Return the generator of the batch that a teacher of IPATE learns from in a step."""
    return np.random.default_rng([seed, step])


def seed_of(sequence: ISeedSequence) -> int:
    """Return a seed of 63 bits, which every generator takes: torch's and numpy's old ones refuse 64."""
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1
