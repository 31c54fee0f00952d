"""The commitments of a ledger for adaptive analysts: events that were fixed in advance, and the steps they pay for.

An event is a set of steps that a ledger commits to at once: a question, all steps of a plan, a comparison whose costs
are announced. What it commits to no longer depends on anything that is released later. A step that an event has
committed to costs nothing more when it is charged, in any order, and is paid for if it is never made.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Part = tuple[str, str, int]
"""The digest of a cost, the job whose steps are meant ("" for any job with this cost), and a number of steps."""


@dataclass
class Commitments:
    """The events of a ledger, oldest first, and the steps of them that no charge has used yet.

    Attributes:
        events: The parts of each event; an empty list if everything in it was undone.
        announced: By the digest of a cost, the steps that any job may use.
        committed: By the digest of a cost and a job, the steps that only this job may use, used ones included.
        latest: By job, the number of the latest event that has committed to steps of it, from 1.
    """

    events: list[list[Part]] = field(default_factory=list)
    announced: dict[str, int] = field(default_factory=dict)
    committed: dict[tuple[str, str], int] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    _open: list[int] = field(default_factory=list)  # events with steps that any job may use

    def add(self, parts: Iterable[Part]) -> None:
        """Enter an event."""
        self.events.append([])
        for digest, job, steps in parts:
            self.events[-1].append((digest, job, steps))
            if job:
                self.committed[digest, job] = self.committed.get((digest, job), 0) + steps
                self.latest[job] = len(self.events)
            else:
                self.announced[digest] = self.announced.get(digest, 0) + steps
                self._open.append(len(self.events) - 1)

    def take(self, digest: str, job: str, steps: int) -> None:
        """Let a job use announced steps that any job with this cost might have used."""
        self.announced[digest] -= steps
        self.committed[digest, job] = self.committed.get((digest, job), 0) + steps
        for number in self._open:
            event = self.events[number]
            for place, (other, name, count) in enumerate(list(event)):
                taken = min(count, steps) if (other, name) == (digest, "") else 0
                if taken:
                    event[place] = digest, "", count - taken
                    event.append((digest, job, taken))
                    steps, self.latest[job] = steps - taken, number + 1
        self._open = [
            number for number in self._open if any(not name and left for _, name, left in self.events[number])
        ]

    def release(self, digest: str, job: str, used: int) -> None:
        """Let go of all steps of a job but those it has used: the latest events first."""
        excess = self.committed.get((digest, job), 0) - used
        self.committed[digest, job] = used
        for event in reversed(self.events):
            for place, (other, name, count) in enumerate(event):
                if (other, name) == (digest, job) and excess:
                    event[place] = digest, job, count - min(count, excess)
                    excess -= min(count, excess)


def steps_by_digest(parts: Iterable[Part]) -> Mapping[str, int]:
    """Return the steps of an event by the digest of their cost."""
    steps: dict[str, int] = {}
    for digest, _, count in parts:
        if count:
            steps[digest] = steps.get(digest, 0) + count
    return steps
