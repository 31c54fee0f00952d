from hypothesis import settings

settings.register_profile("inosgm", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("inosgm")
