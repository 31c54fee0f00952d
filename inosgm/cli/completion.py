"""What a shell proposes for words that are no options: keys of a configuration."""


def keys(incomplete: str) -> list[str]:
    """Return the paths of keys that begin like a word, with a sign after those that take a value.

    >>> keys("plan.step"), keys("optimizer.l")
    (['plan.steps='], ['optimizer.lr='])
    """
    from inosgm.experiments.config import TrainingConfig
    from inosgm.experiments.config.problems import paths

    return [f"{path}=" for path in paths(TrainingConfig) if f"{path}=".startswith(incomplete)]
