import gzip
import pickle
import struct
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

from inosgm.datasets import NAMES, Dataset, load, loading, openml
from inosgm.datasets.dataset import held_out
from inosgm.datasets.names import LENGTH, NATIONALITIES, VOCABULARY, encode
from inosgm.datasets.tables import ADULT_COLUMNS, ADULT_WORDS, CTG_RANGES


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write(path: Path, content: bytes, packed=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if packed else content)


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def mnist_files(root, name="mnist", packed=True):
    images, labels = pixels(6, 28, 28), np.array([0, 1, 2, 3, 4, 9], dtype=np.uint8)
    for part, count in (("train", 6), ("t10k", 2)):
        for what, content in (("images-idx3", images[:count]), ("labels-idx1", labels[:count])):
            write(root / name / f"{part}-{what}-ubyte{'.gz' * packed}", idx(content), packed)
    return images, labels


def cifar_rows(labels, images):
    return np.concatenate([np.asarray(labels, dtype=np.uint8), images.reshape(len(images), -1)], axis=1).tobytes()


class TestDataset:
    def test_pairs_records_with_classes(self):
        x, y = np.zeros((3, 2)), np.array([0, 1, 1])
        with pytest.raises(ValueError, match=r"y_test must be one class per record: got \(2,\) for \(3, 2\)"):
            Dataset(name="n", x=x, y=y, x_test=x, y_test=y[:2], classes=("a", "b"))
        with pytest.raises(ValueError, match=r"y must lie in \[0, 1\)"):
            Dataset(name="n", x=x, y=y, x_test=x, y_test=y, classes=("a",))
        with pytest.raises(ValueError, match="categories must be one per class"):
            Dataset(name="n", x=x, y=y, x_test=x.copy(), y_test=y.copy(), classes=("a", "b"), categories=("c",))

    def test_only_numbers_classes_in_the_order_given(self):
        x, y = np.arange(6.0)[:, None], np.array([0, 1, 2, 0, 1, 2])
        data = Dataset(
            name="n",
            x=x,
            y=y,
            x_test=x.copy(),
            y_test=y.copy(),
            classes=("a", "b", "c"),
            categories=("u", "v", "u"),
        ).only(["c", "a"])
        assert (data.x.ravel().tolist(), data.y.tolist()) == ([0, 2, 3, 5], [1, 0, 1, 0])
        assert (data.x_test.ravel().tolist(), data.y_test.tolist()) == ([0, 2, 3, 5], [1, 0, 1, 0])
        assert (data.classes, data.categories) == (("c", "a"), ("u", "u"))
        with pytest.raises(ValueError, match="among those of n, got 'd'"):
            data.only(["d"])

    def test_a_record_more_leaves_the_others_where_they_were(self):
        x, y = np.arange(50.0)[:, None], np.arange(50) % 3
        less = held_out(x[:-1], y[:-1], name="n", classes="abc")
        more = held_out(x, y, name="n", classes="abc")
        assert set(more.x.ravel()) | set(more.x_test.ravel()) == set(x.ravel())
        assert set(less.x.ravel()) <= set(more.x.ravel())
        assert set(less.x_test.ravel()) <= set(more.x_test.ravel())
        assert np.bincount(more.y_test).tolist() == [3, 3, 3]


class TestEmbedded:
    @pytest.mark.parametrize(
        ("name", "shape", "counts", "test"),
        [
            ("digits", (1442, 1, 8, 8), [143, 146, 142, 147, 145, 146, 145, 144, 140, 144], 355),
            ("breast_cancer", (456, 30), [170, 286], 113),
            ("mnist5k", (4000, 1, 28, 28), [400] * 10, 1000),
        ],
    )
    def test_counts_and_ranges(self, name, shape, counts, test):
        data = load(name)
        assert data.name == name
        assert data.x.shape == shape
        assert data.input_shape == shape[1:]
        assert data.x.dtype == data.x_test.dtype == np.float32
        assert data.y.dtype == data.y_test.dtype == np.int64
        assert np.bincount(data.y).tolist() == counts
        assert len(data.y_test) == test
        low, high = (-1.1, 1.1) if name == "breast_cancer" else (0, 1)
        assert low <= data.x.min() < data.x.max() <= high
        assert len(data.classes) == len(counts)

    def test_arrays_can_become_tensors(self):
        assert all(array.flags.writeable for array in (load("digits").x, load("digits").y, load("digits").y_test))


class TestImages:
    @pytest.mark.parametrize("packed", [True, False])
    @pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
    def test_idx(self, tmp_path, name, packed):
        images, labels = mnist_files(tmp_path, name, packed)
        data = load(name, tmp_path)
        np.testing.assert_array_equal(data.x[:, 0], np.float32(images) / np.float32(255))
        assert data.y.tolist() == labels.tolist()
        assert (data.x_test.shape, data.y_test.tolist()) == ((2, 1, 28, 28), [0, 1])
        assert data.x.flags.writeable

    def test_the_environment_names_the_directory(self, tmp_path, monkeypatch):
        mnist_files(tmp_path)
        monkeypatch.setenv("INOSGM_DATA", str(tmp_path))
        assert len(load("mnist").y) == 6

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda content: b"\x1f" + content[1:], "does not begin like one"),
            (lambda content: content[:3], "does not begin like one"),
            (lambda content: content[:6], "does not begin like one"),
            (lambda content: content[:-1], "must hold 4704 bytes after its header"),
        ],
    )
    def test_a_damaged_idx_is_refused(self, tmp_path, damage, message):
        images, _ = mnist_files(tmp_path, packed=False)
        write(tmp_path / "mnist" / "train-images-idx3-ubyte", damage(idx(images)))
        with pytest.raises(ValueError, match=f"train-images-idx3-ubyte.*{message}"):
            load("mnist", tmp_path)

    def test_damaged_packing_is_refused(self, tmp_path):
        images, _ = mnist_files(tmp_path)
        write(tmp_path / "mnist" / "train-images-idx3-ubyte.gz", gzip.compress(idx(images))[:-9])
        with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz must be a whole gzip file"):
            load("mnist", tmp_path)
        for content in (b"", b"PK\x03\x04 and no more"):
            write(tmp_path / "pneumoniamnist" / "pneumoniamnist.npz", content)
            with pytest.raises(ValueError, match=r"pneumoniamnist.npz must be an npz file"):
                load("pneumoniamnist", tmp_path)

    def test_cifar10_npz(self, tmp_path):
        images = pixels(5, 32, 32, 3)
        arrays = {"x_train": images[:3], "y_train": np.uint8([0, 1, 9]), "x_holdout": images[3:]}
        (tmp_path / "cifar10").mkdir()
        np.savez(tmp_path / "cifar10" / "cifar10_20k.npz", **arrays, y_holdout=np.uint8([2, 3]))
        data = load("cifar10", tmp_path)
        np.testing.assert_array_equal(data.x[2, :, 4, 7], np.float32(images[2, 4, 7]) / np.float32(255))
        assert (data.y.tolist(), data.y_test.tolist(), data.classes[9]) == ([0, 1, 9], [2, 3], "truck")

    def test_cifar10_binary_comes_first_and_must_be_whole(self, tmp_path):
        folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
        images = pixels(6, 3, 32, 32)
        for i in range(5):
            write(folder / f"data_batch_{i + 1}.bin", cifar_rows([[i]], images[i : i + 1]))
        write(tmp_path / "cifar10" / "cifar10_20k.npz", b"not read")
        with pytest.raises(FileNotFoundError, match=r"put test_batch.bin into .*cifar-10-batches-bin"):
            load("cifar10", tmp_path)
        write(folder / "test_batch.bin", cifar_rows([[7]], images[5:]))
        data = load("cifar10", tmp_path)
        np.testing.assert_array_equal(data.x, np.float32(images[:5]) / np.float32(255))
        assert (data.y.tolist(), data.y_test.tolist()) == ([0, 1, 2, 3, 4], [7])
        write(folder / "test_batch.bin", b"short")
        with pytest.raises(ValueError, match="rows of 3073 bytes, got 5"):
            load("cifar10", tmp_path)

    def test_cifar100_knows_the_category_of_each_class(self, tmp_path):
        folder = tmp_path / "cifar100" / "cifar-100-binary"
        images = pixels(4, 3, 32, 32)
        write(folder / "train.bin", cifar_rows([[1, 0], [0, 1], [1, 2]], images[:3]))
        write(folder / "test.bin", cifar_rows([[1, 2]], images[3:]))
        write(folder / "fine_label_names.txt", b"shark\nbus\ntrout\n")
        write(folder / "coarse_label_names.txt", b"vehicles_1\nfish\n")
        data = load("cifar100", tmp_path)
        assert (data.classes, data.categories) == (("shark", "bus", "trout"), ("fish", "vehicles_1", "fish"))
        assert (data.y.tolist(), data.y_test.tolist(), data.x.shape) == ([0, 1, 2], [2], (3, 3, 32, 32))
        write(folder / "test.bin", cifar_rows([[0, 2]], images[3:]))
        with pytest.raises(ValueError, match="each in one category"):
            load("cifar100", tmp_path)

    def test_pneumoniamnist(self, tmp_path):
        (tmp_path / "pneumoniamnist").mkdir()
        path = tmp_path / "pneumoniamnist" / "pneumoniamnist.npz"
        arrays = {"train_images": pixels(3, 28, 28), "train_labels": np.uint8([[0], [1], [1]])}
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match="must hold the array 'test_images'"):
            load("pneumoniamnist", tmp_path)
        np.savez(path, **arrays, test_images=pixels(1, 28, 28), test_labels=np.uint8([[1]]))
        data = load("pneumoniamnist", tmp_path)
        assert (data.x.shape, data.y.tolist(), data.y_test.tolist()) == ((3, 1, 28, 28), [0, 1, 1], [1])

    def test_nothing_is_unpickled(self, tmp_path):
        class Trap:
            def __reduce__(self):
                return (Path.touch, (tmp_path / "sprung",))

        path = tmp_path / "pneumoniamnist" / "pneumoniamnist.npz"
        path.parent.mkdir()
        names = ["train_images", "train_labels", "test_images", "test_labels"]
        np.savez(path, **{name: np.array([Trap()], dtype=object) for name in names})
        with pytest.raises(ValueError, match="npz file of plain arrays"):
            load("pneumoniamnist", tmp_path)
        path.write_bytes(pickle.dumps(Trap()))
        with pytest.raises(ValueError, match="npz file of plain arrays"):
            load("pneumoniamnist", tmp_path)
        assert not (tmp_path / "sprung").exists()


def ctg_file(root, rows):
    header = [*CTG_RANGES, "CLASS", "NSP"]
    lines = [",".join(map(str, row)) for row in rows]
    write(root / "cardiotocography" / "ctg.csv", "\n".join([",".join(header), *lines, ""]).encode())


ADULT_ROW = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
)
ADULT_ROWS = [ADULT_ROW + "United-States, <=50K", ADULT_ROW.replace("State-gov", "?") + "?, >50K"]


class TestTables:
    def test_cardiotocography_is_scaled_by_constants(self, tmp_path):
        rows = [[(low + high) / 2 for low, high in CTG_RANGES.values()] + [9, nsp] for nsp in (1, 2, 3)]
        ctg_file(tmp_path, rows)
        data = load("cardiotocography", tmp_path)
        np.testing.assert_allclose(data.x, 0, atol=1e-6)
        assert (data.y.tolist(), data.classes) == ([0, 1, 2], ("normal", "suspicious", "pathological"))
        ctg_file(tmp_path, [*rows, [1e6] * len(CTG_RANGES) + [1, 1]])
        more = load("cardiotocography", tmp_path)
        np.testing.assert_array_equal(more.x[:3], data.x)  # a record does not move the others, whatever it holds
        np.testing.assert_array_equal(more.x[3], 3)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "must have the column 'LB'"),
            (b"LB,AC\n1,2\n", "must have the column 'FM'"),
            (",".join([*CTG_RANGES, "NSP\n1,2\n"]).encode(), "22 entries in every row, row 1 has not"),
            (",".join([*CTG_RANGES, "NSP\n"]).encode() + b"secret," * 21 + b"1", "numbers in column 'LB'"),
            (",".join([*CTG_RANGES, "NSP\n"]).encode() + b"nan," * 21 + b"1", "finite numbers in column 'LB', row 1"),
        ],
    )
    def test_a_damaged_table_is_refused_without_showing_records(self, tmp_path, content, message):
        write(tmp_path / "cardiotocography" / "ctg.csv", content)
        with pytest.raises(ValueError, match=message) as error:
            load("cardiotocography", tmp_path)
        assert "secret" not in str(error.value)

    def test_adult_reads_both_forms_alike(self, tmp_path):
        write(tmp_path / "a" / "adult" / "adult.data", "\n".join([*ADULT_ROWS, ""]).encode())
        test = f"|1x3 Cross validator\n{ADULT_ROWS[1]}.\n"
        write(tmp_path / "a" / "adult" / "adult.test", test.encode())
        header = ",".join([*ADULT_COLUMNS, "income", "split"])
        rows = [ADULT_ROWS[0] + ",train", ADULT_ROWS[1] + ",train", ADULT_ROWS[1] + ",test"]
        write(tmp_path / "b" / "adult" / "adult.csv.gz", "\n".join([header, *rows]).encode(), packed=True)
        official, table = load("adult", tmp_path / "a"), load("adult", tmp_path / "b")
        for part in ("x", "y", "x_test", "y_test"):
            np.testing.assert_array_equal(getattr(official, part), getattr(table, part))
        assert (table.y.tolist(), table.y_test.tolist(), table.x.shape) == ([0, 1], [1], (2, 104))
        assert table.x[0, 5:].sum() == len(ADULT_WORDS)
        assert table.x[1, 5:].sum() == len(ADULT_WORDS) - 2  # a missing word leaves zeros
        np.testing.assert_allclose(
            table.x[0, :5], [2 * 22 / 73 - 1, 2 * 12 / 15 - 1, 2 * 39 / 98 - 1, np.log(2175) / np.log1p(1e5), 0], 1e-6
        )

    def test_adult_refuses_an_unpublished_word_without_showing_it(self, tmp_path):
        header = ",".join([*ADULT_COLUMNS, "income", "split"])
        row = ADULT_ROWS[0].replace("State-gov", "Secret-agent") + ",train"
        write(tmp_path / "adult" / "adult.csv", f"{header}\n{row}".encode())
        with pytest.raises(ValueError, match="published words in column 'workclass', row 1") as error:
            load("adult", tmp_path)
        assert "Secret" not in str(error.value)


class TestNames:
    def test_codes(self):
        assert encode("aZ -").tolist() == [1, 52, 53, 58] + [0] * (LENGTH - 4)
        assert encode("é")[0] == encode("e")[0]
        assert encode("ł/")[:2].tolist() == [VOCABULARY - 1] * 2
        assert encode("a" * 99).tolist() == [1] * LENGTH

    def test_one_file_per_nationality(self, tmp_path):
        for nationality in NATIONALITIES:
            write(tmp_path / "names" / f"{nationality}.txt", "Abe\n\n Óbe \n".encode())
        data = load("names", tmp_path)
        assert data.x.shape == (36, LENGTH)
        assert data.x.dtype == np.int64
        assert data.y.tolist() == np.repeat(np.arange(18), 2).tolist()
        assert data.x[1, :4].tolist() == [41, 2, 5, 0]
        (tmp_path / "names" / "Greek.txt").unlink()
        with pytest.raises(FileNotFoundError, match=r"put Greek.txt into .*names"):
            load("names", tmp_path)


class TestMissing:
    @pytest.mark.parametrize(
        ("name", "files"),
        {
            "adult": "adult.data, adult.test into {}/adult, or adult.csv.gz",
            "cardiotocography": "ctg.csv into {}/cardiotocography",
            "cifar10": "data_batch_1.bin, .*test_batch.bin into {}/cifar10/cifar-10-batches-bin .*or cifar10_20k.npz "
            "into {}/cifar10",
            "cifar100": "train.bin, test.bin, fine_label_names.txt, .* into {}/cifar100/cifar-100-binary",
            "fashion_mnist": "train-images-idx3-ubyte, .* with .gz. into {}/fashion_mnist",
            "mnist": "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-.* with .gz. into {}/mnist",
            "names": "Arabic.txt, .* into {}/names",
            "pneumoniamnist": "pneumoniamnist.npz into {}/pneumoniamnist",
        }.items(),
    )
    def test_says_where_to_put_which_file(self, tmp_path, name, files, monkeypatch):
        assert name in loading.FILED
        with pytest.raises(FileNotFoundError, match=files.format(tmp_path, tmp_path)):
            load(name, tmp_path)
        monkeypatch.delenv("INOSGM_DATA", raising=False)
        with pytest.raises(FileNotFoundError, match=r"into \$INOSGM_DATA/.*root= or INOSGM_DATA names"):
            load(name)

    def test_an_unknown_name_lists_the_known(self):
        with pytest.raises(ValueError, match="got 'imagenet'") as error:
            load("imagenet")
        assert all(name in str(error.value) for name in NAMES)


class TestOpenML:
    def bunch(self, **changes):
        data = pd.DataFrame(
            {"size": [1.5, 2, 3, 4, 5, 6], "kind": pd.Categorical(["u", "v", None, "u", "v", "u"], ["w", "u", "v"])}
        )
        target = pd.Series(["no", "yes", "no", "no", "no", "no"], dtype="category")
        return Bunch(**{"data": data, "target": target} | changes)

    def test_a_bunch_becomes_a_data_set(self, monkeypatch, tmp_path):
        asked = {}
        monkeypatch.setattr(openml, "fetch_openml", lambda **which: asked.update(which) or self.bunch())
        data = load("openml:toys", tmp_path)
        assert (asked["name"], asked["version"], asked["data_home"]) == ("toys", 1, tmp_path / "openml")
        assert data.x.tolist() == [[1.5, 0, 1, 0], [2, 0, 0, 1], [3, 0, 0, 0], [4, 0, 1, 0], [5, 0, 0, 1]]
        assert (data.x_test.tolist(), data.classes) == ([[6, 0, 1, 0]], ("no", "yes"))
        assert data.y.tolist() == [0, 1, 0, 0, 0]
        assert load("openml:61", tmp_path).name == "openml:61"
        assert asked["data_id"] == 61

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"target": None}, "a class for every record"),
            ({"target": pd.Series([0.5] * 6)}, "a class for every record"),
            ({"target": pd.Series(["a", None] * 3)}, "a class for every record"),
            ({"data": pd.DataFrame({"text": ["a"] * 6})}, "column 'text'"),
            ({"data": pd.DataFrame({"hole": [1.0, None] * 3})}, "column 'hole'"),
        ],
    )
    def test_what_is_not_a_table_with_classes_is_refused(self, changes, message):
        with pytest.raises(ValueError, match=message):
            openml.from_bunch(self.bunch(**changes), "openml:toys")

    @pytest.mark.parametrize("name", ["toys", "61"])
    def test_no_network(self, monkeypatch, tmp_path, name):
        def fail(request):
            raise URLError("no route")

        monkeypatch.setattr("sklearn.datasets._openml.urlopen", fail)
        message = rf"openml:{name} could not be fetched .*no route.*must be reachable"
        with pytest.raises(ConnectionError, match=message):
            load(f"openml:{name}", tmp_path)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "shape", "test", "counts"),
    [
        ("adult", (32561, 104), 16281, [24720, 7841]),
        ("cardiotocography", (1701, 21), 425, [1324, 236, 141]),
        ("cifar10", (20000, 3, 32, 32), 5000, [2000] * 10),
        ("fashion_mnist", (60000, 1, 28, 28), 10000, [6000] * 10),
        ("mnist", (60000, 1, 28, 28), 10000, [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
        ("names", (16050, 20), 4000, None),
        ("pneumoniamnist", (4708, 1, 28, 28), 624, [1214, 3494]),
    ],
)
def test_real_files(shared_data, name, shape, test, counts):
    data = load(name, shared_data)
    assert (data.x.shape, len(data.y_test)) == (shape, test)
    assert counts is None or np.bincount(data.y).tolist() == counts
    assert np.isfinite(data.x).all()
