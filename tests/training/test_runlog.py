import json
import os
import signal
import stat
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from tensorboardX.proto.event_pb2 import Event, SessionLog

from inosgm.training import runlog
from inosgm.training.diagnostics import Diagnostics
from inosgm.training.metrics import Evaluation, evaluation
from inosgm.training.runlog import RunLog

FOUND = evaluation([0.5, 0.1, 2.0], [0, 1, 1], [0, 1, 0], owners=["a", "a", "b"], classes=["cat", "dog"])


def diagnostics(*, private):
    one = np.ones((2, 2))
    return Diagnostics(
        private=private,
        labels=("a", "b"),
        records=np.array([3, 4]),
        lengths=np.ones(2),
        cosines=one,
        condition=one,
        clipped=np.zeros(2),
        learnt_and_clipped=None,
    )


def events(directory):
    """Read event files in the order of TensorBoard, a torn last record left out."""
    for path in sorted((directory / "tensorboard").iterdir()):
        content, at = path.read_bytes(), 0
        while at + 12 <= len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            if at + 16 + length > len(content):
                break
            yield Event.FromString(content[at + 12 : at + 12 + length])
            at += 16 + length


def scalars(directory):
    """What TensorBoard shows: a START purges what came before from its step on."""
    shown = []
    for event in events(directory):
        if event.session_log.status == SessionLog.START:
            shown = [row for row in shown if row[0] < event.step]
        shown += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
    return shown


def test_rows_read_back(tmp_path):
    with RunLog(tmp_path / "new" / "run") as log:
        log.write(0, evaluation=FOUND, epsilon={"least": 0.1, "most": np.float64(2)}, note="start")
        log.write(10, learning_rate=torch.tensor(0.5), sizes=np.arange(2), missing=None)
        rows = log.rows()
    assert Evaluation.from_dict(rows[0].pop("evaluation")) == FOUND
    assert rows == [
        {"step": 0, "epsilon": {"least": 0.1, "most": 2.0}, "note": "start"},
        {"step": 10, "learning_rate": 0.5, "sizes": [0, 1], "missing": None},
    ]
    assert sorted(os.listdir(tmp_path / "new" / "run")) == ["log.jsonl", "tensorboard"]


def test_tensorboard_gets_the_same_numbers(tmp_path):
    with RunLog(tmp_path) as log:
        log.write(7, evaluation=FOUND, epsilon={"least": 0.5, "most": 2}, learning_rate=0.25, flag=True, note="x")
    shown = {tag: value for _, tag, value in scalars(tmp_path)}
    expected = {
        "loss": 2.6 / 3,
        "accuracy": 2 / 3,
        "balanced_accuracy": 0.75,
        "spread": 1.0,
        "recall/class/cat": 0.5,
        "recall/class/dog": 1.0,
        "loss/owner/a": 0.3,
        "accuracy/owner/a": 1.0,
        "recall/owner/a": 1.0,
        "loss/owner/b": 2.0,
        "accuracy/owner/b": 0.0,
        "recall/owner/b": 0.0,
        "epsilon/least": 0.5,
        "epsilon/most": 2.0,
        "learning_rate": 0.25,
    }
    assert shown == pytest.approx(expected)
    assert {step for step, _, _ in scalars(tmp_path)} == {7}
    assert next(events(tmp_path)).file_version == "brain.Event:2"


def test_records_have_the_checksums_that_tensorboard_demands(tmp_path):
    """CRC-32C, masked, as the TFRecord format says; 0xE3069283 is the published check value of the polynomial."""

    def crc(data):
        value = 0xFFFFFFFF
        for byte in data:
            value ^= byte
            for _ in range(8):
                value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        return value ^ 0xFFFFFFFF

    def masked(data):
        return (((crc(data) >> 15) | (crc(data) << 17)) + 0xA282EAD8) & 0xFFFFFFFF

    assert crc(b"123456789") == 0xE3069283
    with RunLog(tmp_path) as log:
        log.write(1, accuracy=0.5)
    content, at, records = next((tmp_path / "tensorboard").iterdir()).read_bytes(), 0, 0
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        data = content[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", content, at + 8)[0] == masked(content[at : at + 8])
        assert struct.unpack_from("<I", content, at + 12 + length)[0] == masked(data)
        at, records = at + 16 + length, records + 1
    assert records == 2


def test_labels_become_one_part_of_a_tag_and_do_not_collide(tmp_path):
    labels = ["a/b", "a%2Fb", "a b", "a\nb", "Zürich"]
    with RunLog(tmp_path) as log:
        log.write(0, evaluation=evaluation([1.0] * 5, [0] * 5, [0] * 5, owners=labels))
    tags = {tag.removeprefix("accuracy/owner/") for _, tag, _ in scalars(tmp_path) if tag.startswith("accuracy/owner/")}
    assert tags == {"a%2Fb", "a%252Fb", "a b", "a%0Ab", "Zürich"}


def test_very_many_owners_stay_out_of_tensorboard_only(tmp_path, monkeypatch):
    monkeypatch.setattr(runlog, "MOST_OWNERS", 1)
    with RunLog(tmp_path) as log:
        log.write(0, evaluation=FOUND)
        assert len(log.rows()[0]["evaluation"]["by_owner"]) == 2
    assert not any("/owner/" in tag for _, tag, _ in scalars(tmp_path))


def undisturbed(directory, steps):
    with RunLog(directory) as log:
        for step in steps:
            log.write(step, learning_rate=1 / (1 + step), evaluation=FOUND)
            log.write_private(step, batch=step * 2)


def test_a_resumed_log_equals_an_undisturbed_one(tmp_path):
    undisturbed(tmp_path / "whole", [0, 10, 20, 30])
    undisturbed(tmp_path / "killed", [0, 10, 20])
    for torn in (b"", b'{"step": 30, "learn', b'{"step": 30}'):
        with open(tmp_path / "killed" / "log.jsonl", "ab") as file:
            file.write(torn)
        with RunLog(tmp_path / "killed", after=10) as log:
            assert [row["step"] for row in log.rows()] == [row["step"] for row in log.private_rows()] == [0, 10]
            for step in (20, 30):
                log.write(step, learning_rate=1 / (1 + step), evaluation=FOUND)
                log.write_private(step, batch=step * 2)
        for name in ("log.jsonl", "private.jsonl"):
            assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        assert scalars(tmp_path / "killed") == scalars(tmp_path / "whole")
    assert stat.S_IMODE((tmp_path / "killed" / "private.jsonl").stat().st_mode) == 0o600
    assert not list((tmp_path / "killed").glob("*.new"))


def test_a_torn_row_is_dropped_without_after_too(tmp_path):
    undisturbed(tmp_path, [0, 10])
    whole = (tmp_path / "log.jsonl").read_bytes()
    (tmp_path / "log.jsonl").write_bytes(whole[:-1])
    with RunLog(tmp_path) as log:
        assert [row["step"] for row in log.rows()] == [0]
        log.write(10, learning_rate=1 / 11, evaluation=FOUND)
    assert (tmp_path / "log.jsonl").read_bytes() == whole


def test_a_log_whose_replacement_was_interrupted_is_whole(tmp_path):
    undisturbed(tmp_path, [0, 10, 20])
    (tmp_path / "log.jsonl.new").write_bytes(b'{"step": 0')
    with RunLog(tmp_path, after=10) as log:
        assert [row["step"] for row in log.rows()] == [0, 10]


@pytest.mark.parametrize(("after", "kept"), [(-1, []), (0, [0]), (9, [0]), (10, [0, 10]), (None, [0, 10])])
def test_after_a_step_nothing_is_kept(after, kept, tmp_path):
    undisturbed(tmp_path, [0, 10])
    with RunLog(tmp_path, after=after) as log:
        assert [row["step"] for row in log.rows()] == [row["step"] for row in log.private_rows()] == kept
    assert sorted({step for step, _, _ in scalars(tmp_path)}) == kept
    with pytest.raises(ValueError, match="after must be a whole number >= -1, got -2"):
        RunLog(tmp_path, after=-2)


def test_rows_survive_kill_9(tmp_path):
    code = """
import os, signal, sys
from inosgm.training.runlog import RunLog
log = RunLog(sys.argv[1])
for step in range(5):
    log.write(step, learning_rate=0.5)
    log.write_private(step, batch=step)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(scalars(tmp_path)) == 5
    with RunLog(tmp_path) as log:
        assert [row["step"] for row in log.rows()] == [row["step"] for row in log.private_rows()] == list(range(5))


def test_private_rows_have_a_file_of_their_own(tmp_path):
    before = os.umask(0)
    try:
        with RunLog(tmp_path) as log:
            log.write_private(3, diagnostics=diagnostics(private=True), training_loss=0.123456)
            assert log.private_rows()[0]["diagnostics"]["private"] is True
            assert log.rows() == []
        os.chmod(tmp_path / "private.jsonl", 0o644)
        with RunLog(tmp_path) as log:
            log.write_private(4)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "private.jsonl").stat().st_mode) == 0o600
    others = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "private.jsonl"]
    assert not any(b"0.123456" in path.read_bytes() or b"diagnostics" in path.read_bytes() for path in others)


@pytest.mark.parametrize(
    "values",
    [
        dict(diagnostics=diagnostics(private=True)),
        dict(diagnostics=diagnostics(private=True).to_dict()),
        dict(several=[{"deep": {"er": diagnostics(private=True)}}]),
        dict(private=True),
    ],
)
def test_what_is_private_is_refused_in_the_open(values, tmp_path):
    with RunLog(tmp_path) as log:
        with pytest.raises(ValueError, match="is private, computed on training records: give it to write_private"):
            log.write(0, good=1.0, **values)
        assert log.rows() == []
        log.write(0, diagnostics=diagnostics(private=False))
        assert log.rows()[0]["diagnostics"]["private"] is False


@pytest.mark.parametrize(
    ("step", "values", "message"),
    [
        (1, dict(loss=float("nan")), "loss must be finite, got nan"),
        (1, dict(deep={"loss": np.array([1.0, np.inf])}), r"deep\.loss must be finite, got inf"),
        (1, dict(labels={1: 2.0}), "labels must have text as keys, got 1"),
        (1, dict(model=object()), "model must be something that JSON can hold, got object"),
        (-1, {}, "step must be a whole number >= 0"),
        (1.5, {}, "step must be a whole number"),
        (4, {}, "step must not go back, from 5 to 4"),
    ],
)
def test_refusals_write_nothing(step, values, message, tmp_path):
    with RunLog(tmp_path) as log:
        log.write(5, learning_rate=0.5)
        with pytest.raises(ValueError, match=message):
            log.write(step, **values)
        log.write(5, again=1.0)
        assert log.rows() == [{"step": 5, "learning_rate": 0.5}, {"step": 5, "again": 1.0}]
    assert len(scalars(tmp_path)) == 2


def test_steps_do_not_go_back_over_openings_either(tmp_path):
    undisturbed(tmp_path, [0, 10])
    with RunLog(tmp_path) as log, pytest.raises(ValueError, match="from 10 to 5: open the log with after="):
        log.write(5)
    with RunLog(tmp_path, after=4) as log:
        log.write(5)


@pytest.mark.parametrize("content", [b"hello\n", b'{"epoch": 1}\n', b"[]\n", b"\n"])
def test_other_files_are_left_alone(content, tmp_path):
    (tmp_path / "log.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=r"line 1 of .*log\.jsonl is no row of a log"):
        RunLog(tmp_path, after=3)
    assert (tmp_path / "log.jsonl").read_bytes() == content


def test_closing_leaves_nothing_behind(tmp_path):
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    log = RunLog(tmp_path)
    log.write(0, learning_rate=0.5)
    log.write_private(0)
    assert threading.active_count() == threads
    log.close()
    log.close()
    assert len(os.listdir("/proc/self/fd")) == files
    with pytest.raises(ValueError, match="the log is closed"):
        log.write(1)
    with pytest.raises(ValueError, match="the log is closed"):
        log.write_private(1)


def test_two_runs_give_the_same_bytes(tmp_path):
    for name in "ab":
        undisturbed(tmp_path / name, [0, 10])
    assert (tmp_path / "a" / "log.jsonl").read_bytes() == (tmp_path / "b" / "log.jsonl").read_bytes()
    rows = map(json.loads, (tmp_path / "a" / "log.jsonl").read_text().splitlines())
    assert all(list(row) == ["step", "learning_rate", "evaluation"] for row in rows)  # no time of day
