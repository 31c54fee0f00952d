import errno
import json
import os
import re
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from inosgm.jobs._record_rules import CREATORS
from inosgm.jobs._records import records_at

WORKER = Path(__file__).parents[1] / "support" / "records_worker.py"
NAMES = ["store.json", "jobs/a/spec.json", "jobs/a/attempts/1/beat", "jobs/b/spec.json", "jobs-c", "ledger/a=1.json"]


def work(command, records, *arguments):
    """Run the worker to its end and return what it said, line by line."""
    words = [sys.executable, str(WORKER), command, records.uri, *arguments]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def files_of(records):
    return sorted(str(path.relative_to(records.uri)) for path in Path(records.uri).rglob("*") if path.is_file())


@pytest.fixture
def local(tmp_path):
    return records_at(tmp_path / "store")


@pytest.fixture(params=["local", "memory"])
def records(request, tmp_path):
    return records_at(tmp_path / "store" if request.param == "local" else f"memory:/{tmp_path}")


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["create", "replace", "read", "remove", "names"]), st.sampled_from(NAMES), st.binary(max_size=9)
    ),
    max_size=25,
)


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_records_are_a_mapping_with_exclusive_creation(kind, tmp_path):
    count = iter(range(10**6))

    @settings(max_examples=40)
    @given(OPERATIONS)
    def check(operations):
        place = f"{tmp_path}/{next(count)}"
        records, model = records_at(place if kind == "local" else f"memory:/{place}"), {}
        for operation, name, content in operations:
            if operation == "create" and name in model:
                with pytest.raises(FileExistsError, match=name):
                    records.create(name, content)
            elif operation in ("create", "replace"):
                getattr(records, operation)(name, content)
                model[name] = content
            elif operation == "read" and name not in model:
                with pytest.raises(FileNotFoundError, match=name):
                    records.read(name)
            elif operation == "remove":
                records.remove(name)
                model.pop(name, None)
            for under in ("", "jobs", "jobs/a", name):
                assert records.names(under) == sorted(n for n in model if not under or n.startswith(f"{under}/"))
        assert {name: records.read(name) for name in records.names()} == model

    check()


def test_probe_leaves_nothing_and_says_nothing_where_all_is_well(records):
    records.create("before", b"")
    records.probe()
    assert records.names() == ["before"]
    if not records.uri.startswith("memory"):
        assert files_of(records) == ["before"]


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../up", "a/../../up", "a//b", "a/", ".hidden", "a\\b", "a\0", "a b", "*"]
)
def test_names_cannot_leave_the_store(records, name):
    for action in (
        records.read,
        records.remove,
        lambda name: records.create(name, b""),
        lambda name: records.replace(name, b""),
    ):
        with pytest.raises(ValueError, match="name must be"):
            action(name)
    if name:
        with pytest.raises(ValueError, match="name must be"):
            records.names(name)


# Places


def test_places_are_the_same_from_every_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a b").mkdir()
    assert {records_at(place).uri for place in ("store", "~/store", f"file://{tmp_path}/store")} == {
        f"{tmp_path}/store"
    }
    assert records_at(f"file://localhost{tmp_path}/a%20b/").uri == f"{tmp_path}/a b"
    assert list(tmp_path.iterdir()) == [tmp_path / "a b"]  # opening writes nothing


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("", "must be a path"),
        ("file://other/machine", "must be a path"),
        ("s3://", "must be a plain URI"),
        ("simplecache::s3://bucket/x", "must be a plain URI"),
        ("s3://bucket/x?versionId=1", "must be a plain URI"),
        ("nothing://x", "that fsspec knows"),
        ("sftp://host/x", "mount it"),
        ("smb://host/x", "mount it"),
        ("https://host/x", "object store with conditional writes"),
    ],
)
def test_places_that_cannot_be_a_store_are_refused(uri, message):
    with pytest.raises(ValueError, match=message):
        records_at(uri)


@pytest.mark.parametrize("uri", ["s3://key:hush@bucket/x", "s3://key:hu/sh@bucket", "sftp://me:hush@host/x"])
def test_credentials_in_a_place_are_refused_and_not_repeated(uri):
    with pytest.raises(ValueError, match="environment") as caught:
        records_at(uri)
    assert "hu" not in str(caught.value)


# Local files


def race(records, letters, rounds):
    """Let processes create the same records, and check that each has one creator and is always seen whole."""
    told = work("race", records, letters, str(rounds))
    won = {number: letter for letter, mine, _ in told for number in mine}
    assert sorted(letter for letter, _, _ in told) == list(letters)
    assert sum(len(mine) for _, mine, _ in told) == len(won) == rounds
    assert sum(halves for _, _, halves in told) == 0
    assert all(records.read(f"race/{number}")[:1] == letter.encode() for number, letter in won.items())


def test_one_of_many_processes_wins_and_nobody_sees_a_half(local):
    race(local, "abcd", rounds=25)
    assert files_of(local) == local.names()  # no drafts are left


def test_killed_writers_leave_nothing_that_is_seen(local):
    functions = ["fsync", "link", "replace"]
    for function in functions:
        local.create(f"{function}/beat", b"old")
    work("die", local, *functions)
    beats = [f"{function}/beat" for function in functions]
    assert local.names() == beats
    assert {local.read(beat) for beat in beats} == {b"old"}
    drafts = set(files_of(local)) - set(beats)
    assert len(drafts) == 3
    local.sweep(lambda name: False)
    assert drafts < set(files_of(local))  # for all one knows their writers live
    local.sweep(lambda name: name.startswith("link/"))
    left = {draft for draft in drafts if not draft.startswith("link/")}
    assert set(files_of(local)) == {*left, *beats}
    for draft in left:
        os.utime(f"{local.uri}/{draft}", (0, 0))
    local.sweep(lambda name: False)
    assert files_of(local) == beats


def test_the_second_name_of_a_record_is_swept_at_once(local):
    """A writer that was killed after the link left the draft, which is the record under another name."""
    local.create("unlink/beat", b"old")
    work("die", local, "unlink")
    assert len(files_of(local)) == 3
    local.sweep(lambda name: False)
    assert files_of(local) == ["unlink/beat", "unlink/result.json"]
    assert local.read("unlink/result.json") == b"done"


def test_a_sweep_leaves_what_is_being_tried_out(local, monkeypatch):
    """Two commands may open one store at once: one proves that records are created exclusively, the other sweeps."""
    read = local.read

    def swept_meanwhile(name):
        local.sweep(lambda name: True)
        return read(name)

    monkeypatch.setattr(local, "read", swept_meanwhile)
    local.probe()
    assert files_of(local) == []


def test_writers_killed_anywhere_leave_whole_records(local):
    work("die_anywhere", local, "5")
    assert len(local.names()) >= 3 + 4 + 5 + 6 + 7
    assert {local.read(name) for name in local.names()} == {b"x" * 20_000}


@pytest.mark.parametrize("action", ["create", "replace"])
def test_a_writer_whose_draft_was_swept_writes_another(local, monkeypatch, action):
    function = "link" if action == "create" else "replace"
    place, swept = getattr(os, function), []

    def sweep_first(draft, path):
        if not swept:
            swept.append(draft)
            os.unlink(draft)
        place(draft, path)

    monkeypatch.setattr(os, function, sweep_first)
    getattr(local, action)("a/b", b"content")
    assert swept
    assert local.read("a/b") == b"content"
    assert files_of(local) == ["a/b"]


def test_a_lost_answer_of_a_file_server_is_no_lost_race(local, monkeypatch):
    link = os.link

    def link_twice(draft, path):
        link(draft, path)
        link(draft, path)

    monkeypatch.setattr(os, "link", link_twice)
    local.create("a", b"mine")
    with pytest.raises(FileExistsError):
        local.create("a", b"other")
    assert local.read("a") == b"mine"
    assert files_of(local) == ["a"]


def test_what_file_systems_leave_is_no_record(local):
    local.create("jobs/a", b"")
    (Path(local.uri) / "jobs/.nfs0001").write_bytes(b"")
    (Path(local.uri) / ".snapshot").mkdir()
    (Path(local.uri) / ".snapshot/b").write_bytes(b"")
    local.probe()
    assert local.names() == ["jobs/a"]
    assert len(files_of(local)) == 3  # nor ours to delete


def test_a_file_that_was_replaced_on_another_machine_is_read_again(local, monkeypatch):
    local.create("beat", b"new")
    errors = [OSError(errno.ESTALE, "Stale file handle") for _ in range(3)]
    monkeypatch.setattr(
        "builtins.open", lambda *a, open=open: (_ for _ in ()).throw(errors.pop()) if errors else open(*a)
    )
    assert local.read("beat") == b"new"
    assert not errors


def test_what_is_created_is_durable_and_costs_two_syncs(local, monkeypatch):
    calls, fsync, link = [], os.fsync, os.link

    def note(descriptor):
        calls.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), os.path.dirname(local.uri)))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "link", lambda draft, path: (calls.append("link"), link(draft, path)))
    local.create("jobs/a/spec.json", b"1")
    *folders, draft, linked, folder = calls
    assert folders == [".", "store", "store/jobs"]  # every new directory gets a durable name, from the top
    assert draft.startswith("store/jobs/a/.draft-")
    assert [linked, folder] == ["link", "store/jobs/a"]
    calls.clear()
    local.create("jobs/a/key", b"2")
    assert calls[1:] == ["link", "store/jobs/a"]


def test_secrets_are_for_their_owner_alone(local):
    for name in ("made", "put"):
        getattr(local, "create" if name == "made" else "replace")(name, b"secret", secret=True)
        assert stat.S_IMODE(os.stat(f"{local.uri}/{name}").st_mode) == 0o600


def test_a_directory_that_cannot_be_read_is_no_empty_one(local, monkeypatch):
    local.create("jobs/a", b"")
    scandir = os.scandir

    def refuse(path):
        if path.endswith("jobs/"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError, match="permissions"):
        local.names()


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    records = records_at(tmp_path / "file")
    for action in (records.names, records.probe, lambda: records.create("a", b"")):
        with pytest.raises(NotADirectoryError, match="choose another store"):
            action()


def test_a_file_system_without_hard_links_is_refused(local, monkeypatch):
    def refuse(draft, path):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(ValueError, match="no hard links"):
        local.probe()
    assert files_of(local) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_errors_of_the_place_say_what_to_do(local, monkeypatch, number):
    def fail(descriptor):
        raise OSError(number, "no")

    local.create("a", b"old")
    monkeypatch.setattr(os, "fsync", fail)
    for action in (local.create, local.replace):
        with pytest.raises(OSError, match=f"the store {local.uri} .*: ") as caught:
            action("a", b"new")
        assert caught.value.errno == number
    assert files_of(local) == ["a"]
    assert local.read("a") == b"old"


@pytest.fixture
def mount(tmp_path):
    """Mount a small file system, or skip."""
    place = tmp_path / "mounted"
    place.mkdir()

    def run(*words):
        done = subprocess.run([*words, str(place)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"needs the right to mount: {done.stderr.strip()}")

    try:
        run("mount", "-t", "tmpfs", "-o", "size=64k", "none")
    except FileNotFoundError:
        pytest.skip("needs mount")
    yield place, run
    run("umount")


def test_a_full_file_system_keeps_what_was_done(mount):
    records = records_at(mount[0])
    records.create("jobs/a", b"a" * 30_000)
    with pytest.raises(OSError, match="is full: free some space") as caught:
        records.create("jobs/b", b"b" * 60_000)
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="is full"):
        records.replace("jobs/a", b"c" * 60_000)
    assert files_of(records) == ["jobs/a"]
    records.create("jobs/b", b"b" * 10_000)  # goes on once there is space
    assert records.read("jobs/a") == b"a" * 30_000


def test_a_read_only_file_system_can_be_read(mount):
    place, run = mount
    records = records_at(place)
    records.create("jobs/a", b"a")
    run("mount", "-o", "remount,ro")
    assert records.names() == ["jobs/a"]
    assert records.read("jobs/a") == b"a"
    for action in (lambda: records.create("jobs/b", b""), lambda: records.create("b/b/b", b""), records.probe):
        with pytest.raises(OSError, match="can only be read: mount it for writing") as caught:
            action()
        assert caught.value.errno == errno.EROFS


# Objects


RACED = re.compile(r"-\d+$")
"""How the names of records end that several threads create at once, to try a store out."""


class Inherits(fsspec.AbstractFileSystem):
    protocol = "inherits"


class Pretends(MemoryFileSystem):
    """Objects in memory; what is wrong with them is said by a subclass."""

    store, pseudo_dirs = {}, [""]
    lock = threading.Lock()

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.partition("://")[2] if "://" in path else path

    def put(self, path, value):
        super().pipe_file(path, value)


class Forgets(Pretends):
    protocol = "forgets"

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        self.put(path, value)


class AsksFirst(Pretends):
    protocol = "asksfirst"
    gate = threading.Barrier(CREATORS)

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        if RACED.search(path):
            self.gate.wait()  # all have asked before the first puts
        self.put(path, value)


class ShowsHalves(Pretends):
    protocol = "showshalves"
    seen = threading.Event()

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        with self.lock:
            if mode == "create" and self.exists(path):
                raise FileExistsError(path)
            self.put(path, value[: len(value) // 2])
        if RACED.search(path):
            self.seen.wait()
        self.put(path, value)

    def cat_file(self, path, *arguments, **more):
        try:
            return super().cat_file(path, *arguments, **more)
        finally:
            self.seen.set()


class Answers(Pretends):
    """Fails as it is told, the way libraries do."""

    protocol = "answers"
    errors: ClassVar = []

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        if self.errors:
            raise self.errors.pop(0)
        self.put(path, value)


for kind in (Inherits, Forgets, AsksFirst, ShowsHalves, Answers):
    fsspec.register_implementation(kind.protocol, kind)


def test_a_class_that_inherits_creation_is_refused():
    with pytest.raises(ValueError, match="in two steps"):
        records_at("inherits://bucket/x")


@pytest.mark.parametrize(
    ("scheme", "finding"),
    [
        ("forgets", "a second creation of a record went through"),
        ("asksfirst", r"\d of 4 creators of one record went through at once"),
        ("showshalves", "seen before it was whole"),
    ],
)
def test_a_store_that_only_pretends_is_found_out(scheme, finding):
    records = records_at(f"{scheme}://bucket/x")
    with pytest.raises(ValueError, match=finding):
        records.probe()
    assert not [name for name in Pretends.store if name.startswith("/bucket/x")]


class ClientError(Exception):
    """As botocore's."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


def wrapped(status):
    error = OSError(errno.EINVAL, "At least one of the preconditions did not hold")
    error.__cause__ = ClientError(status)
    return error


@pytest.mark.parametrize(
    ("error", "kind", "number", "message"),
    [
        (wrapped(412), FileExistsError, errno.EEXIST, "already"),
        (ClientError(412), FileExistsError, errno.EEXIST, "already"),
        (PermissionError("Access Denied"), PermissionError, errno.EACCES, "credentials in the environment"),
        (FileNotFoundError("NoSuchBucket"), FileNotFoundError, errno.ENOENT, "no bucket"),
        (wrapped(500), OSError, errno.EINVAL, "network"),
        (RuntimeError("cannot connect"), OSError, errno.EIO, "RuntimeError: cannot connect"),
    ],
)
def test_errors_of_libraries_become_errors_of_records(error, kind, number, message):
    Answers.errors[:] = [error]
    with pytest.raises(kind, match=message) as caught:
        records_at("answers://bucket").create("a", b"1")
    assert caught.value.errno == number
    assert "answers://bucket/a" in str(caught.value)


def test_a_conflict_decides_nothing_and_is_tried_again(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    records = records_at("answers://conflicts")
    Answers.errors[:] = [wrapped(409), wrapped(409)]
    records.create("a", b"1")
    assert records.read("a") == b"1"
    Answers.errors[:] = [wrapped(409), wrapped(412)]
    with pytest.raises(FileExistsError):
        records.create("b", b"1")
    Answers.errors[:] = [wrapped(409)] * 100
    with pytest.raises(OSError, match="the store answers://conflicts failed"):
        records.create("c", b"1")
    Answers.errors.clear()


def test_threads_that_create_in_memory_have_one_winner(monkeypatch):
    exists = MemoryFileSystem.exists

    def answer_slowly(files, path, **more):
        answer = exists(files, path, **more)
        time.sleep(0.005)
        return answer

    monkeypatch.setattr(MemoryFileSystem, "exists", answer_slowly)
    records_at("memory://threads").probe()
    assert records_at("memory://threads").names() == []


@pytest.fixture(scope="module")
def bucket():
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
        fsspec.filesystem("s3").mkdir("store")
        yield "s3://store"
    server.stop()


def test_records_in_s3(bucket):
    records, other = records_at(f"{bucket}/runs"), records_at(f"{bucket}/runs/")
    records.probe()
    assert records.names() == other.names() == []
    records.create("jobs/a/spec.json", b"1")
    assert other.names("jobs") == ["jobs/a/spec.json"]  # also what others made since the last listing
    with pytest.raises(FileExistsError):
        other.create("jobs/a/spec.json", b"2")
    other.replace("jobs/a/beat", b"3", secret=True)
    assert records.read("jobs/a/beat") == b"3"
    for number in range(25):  # three pages of a listing
        records.create(f"many/{number}", b"")
    assert len(other.names("many")) == 25
    assert other.names("jobs") == ["jobs/a/beat", "jobs/a/spec.json"]
    records.remove("jobs/a/beat")
    records.remove("jobs/a/beat")
    with pytest.raises(FileNotFoundError):
        other.read("jobs/a/beat")
    with pytest.raises(FileNotFoundError, match="no bucket"):
        records_at("s3://nowhere/x").probe()


def test_one_of_many_processes_wins_in_s3(bucket):
    race(records_at(f"{bucket}/race"), "abc", rounds=10)


def test_a_folder_that_another_makes_meanwhile_is_no_refusal(local, monkeypatch):
    """Between a failed attempt to make a folder and the look at the one above it, another writer may make that."""
    original = os.mkdir

    def raced(path, *arguments):
        try:
            original(path, *arguments)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            raise

    monkeypatch.setattr(os, "mkdir", raced)
    local.create("jobs/a/spec.json", b"content")
    assert local.read("jobs/a/spec.json") == b"content"
