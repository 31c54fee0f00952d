import os

from hypothesis import settings

settings.register_profile("inosgm", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("inosgm")

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # virtual machines may claim AMX and crash on bfloat16
