"""IPATE: teachers that learn without noise, whose noisy votes label public records for a student."""

from inosgm.ipate.partition import lessons
from inosgm.ipate.teachers import Teachers, upsampled_teachers, weighted_teachers
from inosgm.ipate.votes import NoisyVotes

__all__ = ["NoisyVotes", "Teachers", "lessons", "upsampled_teachers", "weighted_teachers"]
