"""Guards of what may be used once: objects that keep count, the steps of a job, and the coins of a sum."""

import os
import threading
from typing import Any, NoReturn, Self

_birth = object()  # a new one in every process that forks off


def _forked() -> None:
    global _birth
    _birth = object()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_forked)


def this_process() -> tuple[int, object]:
    """Return what identifies this process; a child that forks off has another one, even if process ids repeat."""
    return os.getpid(), _birth


_COPIERS = ("__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__")


class Uncopied:
    """Base of objects that keep count. They refuse to be copied and pickled: every copy would count for itself."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        changed = [name for name in _COPIERS if getattr(cls, name) is not getattr(Uncopied, name)]
        if changed:
            raise TypeError(
                f"{cls.__name__} must not define {changed[0]}: its objects keep count, and every copy would count for "
                "itself; let what needs copies hold the arguments, and make a new object of them"
            )

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} keeps count, and every copy would count for itself, so it cannot be copied or "
            "pickled: make a new one where you need it"
        )

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = _refuse


class StepCount(Uncopied):
    """The numbers of steps of a job that were released and that are paid for.

    It is an object of its own so that two mechanisms with the same attributes, however they came to be, share it.

    Attributes:
        released: Steps that were released, or begun and lost.
        charged: Steps that are paid for.
    """

    def __init__(self, released: int = 0) -> None:
        self.released = self.charged = released
        self._process = this_process()

    def require_here(self) -> None:
        """Raise in another process than the one that made this object."""
        if this_process() != self._process:
            raise RuntimeError(
                "a mechanism without a key releases only in the process that made it: a forked process would release "
                "the same steps again, with other noise, for one charge. Make the mechanism in the process that "
                "releases, or give it a key, with which a step that is released twice has the same noise"
            )


class CoinClaim:
    """The right to use the coins of a sum: a sum and its copies in one process share it, and one of them uses it once.

    Args:
        sole: Whether nobody but those who share this object can have the coins.

    Attributes:
        lock: Held while a sum is released.
    """

    def __init__(self, *, sole: bool) -> None:
        self.lock = threading.Lock()
        self._sole, self._process = sole, this_process()
        self._use: tuple[str, str] | None = None

    @property
    def here(self) -> bool:
        """Whether it was made in this process: the lock of a process that has forked may be held for ever."""
        return this_process() == self._process

    @property
    def sole(self) -> bool:
        """Whether every sum with these coins shares this object."""
        return self._sole and self.here

    def take(self, job: str, digest: str) -> bool:
        """Use the coins for a job, under the lock; return whether this is the first time.

        Args:
            job: What releases.
            digest: Stands for the sum, if the noise of the job can be repeated: the same once more is a retry.

        Raises:
            RuntimeError: if they were used for anything else.
        """
        if self._use is None:
            self._use = job, digest
            return True
        if self._use == (job, digest) and digest:
            return False
        raise RuntimeError(
            "the coins of this sum may be used once, and it, or a copy of it, was released before: two releases of one "
            "batch are not the two independent ones that would be charged. Make another sum, with coins of its own"
        )

    def free(self) -> None:
        """Take back the first use, after which nothing was drawn."""
        self._use = None

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> Any:
        return _elsewhere, ()


def _elsewhere() -> CoinClaim:
    """Return the claim of a sum that was pickled: others may have the same coins."""
    return CoinClaim(sole=False)
