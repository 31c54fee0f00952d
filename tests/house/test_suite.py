"""The suite itself: whose leftovers fail a test, and that no process outlives the test that has started it."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from grouping import group_of


@pytest.fixture
def outcomes(tmp_path):
    """Run tests, given as text, in a pytest of their own with our plugins; return their outcomes and the output."""

    def run(text, processes=0):
        (tmp_path / "conftest.py").write_text('pytest_plugins = ["grouping", "leftovers", "processes"]')
        (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        (tmp_path / "test_inner.py").write_text(textwrap.dedent(text))
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
        command += ["-n", str(processes), "--dist", "loadgroup"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        found = {}
        for line in done.stdout.splitlines():
            if line.startswith("test_inner.py::") and len(line.split()) > 1:
                name, outcome, *_ = line.removeprefix("test_inner.py::").split()
                found.setdefault(name, []).append(outcome)
        return found, done.stdout + done.stderr

    return run


def test_what_our_code_leaves_open_fails_the_test_that_has_opened_it(outcomes):
    found, told = outcomes(
        """
        import os, socket, subprocess, sys, threading

        class Cycle:
            def __init__(self, content):
                self.content, self.me = content, self

        def test_file(tmp_path):
            open(tmp_path / "x", "w")

        def test_file_in_a_cycle(tmp_path):
            Cycle(open(tmp_path / "x", "w"))

        def test_pipe():
            reader, writer = os.pipe()
            os.fdopen(reader)
            os.close(writer)

        def test_socket_in_a_cycle():
            Cycle(socket.socket())

        def test_process_in_a_cycle():
            Cycle(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

        def test_coroutine():
            async def never():
                pass
            never()

        def test_finalizer():
            class Fails:
                def __del__(self):
                    raise ValueError("ours")
            Fails()

        def test_thread():
            thread = threading.Thread(target=lambda: 1 / 0)
            thread.start()
            thread.join()

        def test_nothing(tmp_path):
            with open(tmp_path / "x", "w"), socket.socket():
                subprocess.run([sys.executable, "-c", ""])
        """
    )
    assert found.pop("test_nothing") == ["PASSED"], told
    assert len(found) == 8, told
    assert all({"FAILED", "ERROR"} & {*outcome} for outcome in found.values()), told


def test_what_a_library_leaves_to_the_collector_fails_no_test(outcomes, tmp_path):
    """Ray keeps the processes that it has started; a ResourceWarning of theirs failed whatever test came next."""
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text(
        textwrap.dedent(
            """
            import asyncio, socket, threading

            class Fails:
                def __del__(self):
                    raise ValueError("theirs")

            def leave(path):
                open(path, "w")
                socket.socket()
                asyncio.new_event_loop()
                Fails()
                cycle = [open(path, "w"), Fails()]
                cycle.append(cycle)

            def in_a_thread():
                thread = threading.Thread(target=lambda: 1 / 0)
                thread.start()
                thread.join()
            """
        )
    )
    found, told = outcomes(
        """
        import gc, subprocess, sys
        sys.path.append("site-packages")
        import library
        from ray._private.services import start_ray_process

        def test_process():
            command = [sys.executable, "-c", "input()"]
            cycle = [start_ray_process(command, "x", False, pipe_stdin=True)]
            cycle.append(cycle)

        def test_others(tmp_path):
            library.leave(tmp_path / "x")
            library.in_a_thread()

        def test_next():
            gc.collect()
        """
    )
    assert found == {name: ["PASSED"] for name in ("test_process", "test_others", "test_next")}, told


def test_a_test_that_fails_leaves_no_process_and_fails_no_other(outcomes, tmp_path):
    found, told = outcomes(
        """
        import gc, multiprocessing, os, subprocess, sys, time
        from patience import wait_until

        WAITS = "import os, time; open('pids/' + str(os.getpid()), 'w').close(); time.sleep(10**9)"
        TWICE = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WAITS!r}], start_new_session=True)"

        def wait():
            exec(WAITS)

        def test_fails(start):
            os.mkdir("pids")
            process = start("-c", WAITS)
            subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, start_new_session=True)
            subprocess.run([sys.executable, "-c", TWICE])  # whose process has no parent any more
            multiprocessing.get_context("spawn").Process(target=wait).start()
            if not os.fork():
                wait()
            wait_until(lambda: len(os.listdir("pids")) == 5, process)
            assert False, "on purpose"

        def test_next():
            gc.collect()
            assert len(os.listdir("pids")) == 5
            assert not [pid for pid in os.listdir("pids") if os.path.exists(f"/proc/{pid}/exe")]
        """
    )
    assert found["test_fails"][0] == "FAILED", told
    assert "on purpose" in told
    assert found["test_next"] == ["PASSED"], told
    pids = [path.name for path in (tmp_path / "pids").iterdir()]
    assert len(pids) == 5
    assert not [pid for pid in pids if Path("/proc", pid, "exe").exists()]  # nor of those that nobody waits for


def test_tests_of_ray_are_run_by_one_process(outcomes, tmp_path):
    """With pytest 9.2, `--dist loadgroup` of pytest-xdist 3.8 runs them in all, so that clusters starve each other."""
    for name in ("a", "b"):
        (tmp_path / f"test_ray_{name}.py").write_text(
            textwrap.dedent(
                """
                import os, pytest

                @pytest.mark.parametrize("number", range(20))
                def test_it(number):
                    with open("processes", "a") as file:
                        print(os.getpid(), file=file)
                """
            )
        )
    _, told = outcomes("def test_nothing(): pass", processes=2)
    written = (tmp_path / "processes").read_text().split()
    assert (len(written), len(set(written))) == (40, 1), told


def test_tests_that_share_a_fixture_of_their_file_are_one_group(tmp_path):
    """One process makes what they share; each of the others would make it once more."""
    (tmp_path / "test_shared.py").write_text('@pytest.fixture(scope="module")\ndef made(): ...\n')
    (tmp_path / "test_alone.py").write_text("def test_it(): ...\n")
    shared = {group_of(f"test_shared.py::{name}", tmp_path) for name in ("test_one", "test_other[1]")}
    assert shared == {"test_shared.py"}
    assert group_of("test_alone.py::test_it", tmp_path) == "test_alone.py::test_it"
