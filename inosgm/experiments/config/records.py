"""Sections of a configuration about the records and their owners."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from inosgm.datasets.loading import NAMES
from inosgm.datasets.rules import Split
from inosgm.datasets.settings import SETTINGS
from inosgm.experiments.config.section import Count, Delta, Epsilon, Options, Positive, Section


class DataConfig(Section):
    """The data set.

    Attributes:
        name: A data set of `inosgm.datasets.load`, or "package.module:function" of your own, which is given `root`
            and returns an `inosgm.datasets.Dataset`.
        root: The data directory; that of INOSGM_DATA if not given.
        subset: Number of training records to use, drawn at random; all if not given.
        public: Number of held-out records to set aside, the same for every seed. Their inputs are public and their
            classes are not used. IPATE labels them; all methods are evaluated on the remaining held-out records.
    """

    name: str
    root: str | None = None
    subset: Count | None = None
    public: Count | None = None

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in NAMES and ":" not in name:
            known = ", ".join(sorted(NAMES))
            raise ValueError(f"must be one of {known}, openml:NAME, or package.module:function, got {name!r}")
        return name


SUFFIX = ".npz"
"""The suffix of files of embeddings."""


class FeaturesConfig(Section):
    """The inputs of the model instead of the records: a fixed function of each record, or embeddings from a file.

    Attributes:
        name: "scattering"; "package.module:function" of your own, which is given `input_shape` and the options and
            returns a torch module, which is run frozen; or an .npz file with the arrays `x` and `x_test`, a row for
            each training and each held-out record of the data set in their order.
        options: Other arguments of that module, such as `groups` of scattering.
    """

    name: str
    options: Options = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.name != "scattering" and ":" not in self.name and not self.from_file:
            raise ValueError(f"name must be scattering, package.module:function, or a file *.npz, got {self.name!r}")
        if self.from_file and self.options:
            raise ValueError(f"options: {self.name} is a file of embeddings, which takes none")
        return self

    @property
    def from_file(self) -> bool:
        """Whether the features are embeddings from a file."""
        return self.name.endswith(SUFFIX)


def _by_name(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


Features = Annotated[FeaturesConfig, BeforeValidator(_by_name)]
"""The section, or only the name in it."""


class SettingOwners(Section):
    """The owners of a setting of the papers.

    Attributes:
        setting: The name of the setting in `inosgm.datasets.settings`.
    """

    setting: str

    @field_validator("setting")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in SETTINGS:
            raise ValueError(f"must be one of {', '.join(SETTINGS)}, got {name!r}")
        return name


class ClassOwners(Section):
    """One owner for each class, named after it.

    Attributes:
        by: "class".
        epsilon: The epsilons: a mapping from class to number, a list in the order of the classes, or one number.
        delta: One number for all owners.
    """

    by: Literal["class"]
    epsilon: Epsilon
    delta: Delta


class FileOwners(Section):
    """Owners from a CSV file with a column `owner` and a row for each training record, in their order.

    Attributes:
        csv: The file.
        held_out: A file with the owner of each held-out record; these are evaluated by class if not given.
        epsilon: The epsilons of the owners: a mapping or one number; the column `epsilon` of the file if not given.
        delta: One number for all owners; the column `delta` of the file if not given.
    """

    csv: str
    held_out: str | None = None
    epsilon: Epsilon | None = None
    delta: Delta | None = None


class SplitOwners(Section):
    """Owners 0, 1, ... that hold random fractions of the training records.

    Attributes:
        fractions: The fraction of each owner; they sum to 1.
        epsilon: The epsilon of each owner, in the same order.
        delta: One number for all owners.
    """

    fractions: Annotated[tuple[Positive, ...], Field(strict=False)]
    epsilon: Annotated[tuple[Positive, ...], Field(strict=False)]
    delta: Delta

    @model_validator(mode="after")
    def _whole(self) -> Self:
        Split(self.fractions, self.epsilon)
        return self


OWNER_FORMS = ("setting", "by", "csv", "fractions")


def _form_of_owners(value: Any) -> str | None:
    keys = value if isinstance(value, Mapping) else type(value).model_fields if isinstance(value, BaseModel) else ()
    forms = [form for form in OWNER_FORMS if form in keys]
    return forms[0] if len(forms) == 1 else None


def _one_form(value: Any) -> Any:
    if _form_of_owners(value) is None:
        got = (", ".join(map(str, value)) or "no keys") if isinstance(value, Mapping) else repr(value)
        raise ValueError(f"must be a mapping with exactly one of the keys {', '.join(OWNER_FORMS)}, got {got}")
    return value


OwnersConfig = Annotated[
    Annotated[SettingOwners, Tag("setting")]
    | Annotated[ClassOwners, Tag("by")]
    | Annotated[FileOwners, Tag("csv")]
    | Annotated[SplitOwners, Tag("fractions")],
    Discriminator(_form_of_owners),
    BeforeValidator(_one_form),
]
