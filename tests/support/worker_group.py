"""Real process groups of torch.distributed for tests: processes that fork off and speak gloo."""

import multiprocessing
import os
import traceback
from tempfile import TemporaryDirectory


def run_group(ranks, function, *arguments):
    """Call function(rank, *arguments) in each rank of a gloo group; return what each rank returned or raised.

    A rank that is killed has returned None. Processes fork off, so the function may be a local one; what it returns is
    pickled.
    """
    fork = multiprocessing.get_context("fork")
    with TemporaryDirectory() as folder:
        lines = [fork.Pipe(duplex=False) for _ in range(ranks)]
        members = [
            fork.Process(target=_member, args=(rank, ranks, f"{folder}/meeting", lines[rank][1], function, arguments))
            for rank in range(ranks)
        ]
        try:
            for member in members:
                member.start()
            for _, writer in lines:
                writer.close()
            return [_heard(reader) for reader, _ in lines]
        finally:
            for member in members:
                member.kill()
                member.join()
                member.close()
            for reader, _ in lines:
                reader.close()


def _heard(reader):
    try:
        return reader.recv()
    except EOFError:
        return None


def _member(rank, ranks, meeting, writer, function, arguments):
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch_threads()
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    try:
        result = function(rank, *arguments)
    except BaseException as error:
        error.add_note(traceback.format_exc())
        result = error
    writer.send(result)
    writer.close()
    os._exit(0)  # neither pytest's atexit functions, nor a wait for ranks that were killed


def torch_threads():
    """Let torch compute with one thread: a pool of threads does not survive a fork."""
    import torch

    torch.set_num_threads(1)
