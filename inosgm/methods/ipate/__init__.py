"""IPATE: teachers that learn without noise, whose noisy votes label public records for a student."""

from inosgm.methods.ipate.partition import ids_of, partition_records
from inosgm.methods.ipate.teachers import Teachers, upsampled_teachers, weighted_teachers
from inosgm.methods.ipate.votes import NoisyVotes

__all__ = ["NoisyVotes", "Teachers", "ids_of", "partition_records", "upsampled_teachers", "weighted_teachers"]
