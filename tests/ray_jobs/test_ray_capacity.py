import pytest

from ray_jobs.capacity import Request


@pytest.mark.parametrize(
    ("request_", "node", "held"),
    [
        (Request(), {"CPU": 4}, 4),
        (Request(), {"CPU": 3.5}, 3),
        (Request(), {}, 0),
        (Request(num_cpus=2), {"CPU": 5}, 2),
        (Request(num_cpus=0.1), {"CPU": 1}, 10),  # 1 // 0.1 is 9
        (Request(num_gpus=1), {"CPU": 8, "GPU": 3}, 3),
        (Request(num_gpus=2), {"CPU": 8, "GPU": 3}, 1),
        (Request(num_gpus=0.5), {"CPU": 8, "GPU": 3}, 6),
        (Request(num_gpus=0.5), {"CPU": 3, "GPU": 3}, 3),
        (Request(num_gpus=0.6), {"CPU": 8, "GPU": 2}, 2),  # 2 // 0.6 is 3, but the third would lie on two devices
        (Request(num_gpus=1 / 3), {"CPU": 8, "GPU": 1}, 3),
        (Request(num_gpus=0.5), {"CPU": 8}, 0),
        (Request(resources={"big": 1}), {"CPU": 8, "big": 2}, 2),
        (Request(resources={"big": 1}), {"CPU": 8}, 0),
        (Request(num_gpus=0.25, resources={"big": 0.5}), {"CPU": 8, "GPU": 1, "big": 1}, 2),
    ],
)
def test_how_many_a_node_holds(request_, node, held):
    assert request_.held_by(node) == held


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"num_cpus": 0}, "num_cpus"),
        ({"num_cpus": -1}, "num_cpus"),
        ({"num_cpus": float("nan")}, "num_cpus"),
        ({"num_gpus": 1.5}, "num_gpus"),
        ({"num_gpus": -1}, "num_gpus"),
        ({"num_gpus": 1e-6}, "num_gpus"),
        ({"resources": {"big": 0}}, r"resources\['big'\]"),
        ({"resources": {"GPU": 1}}, "use num_gpus"),
        ({"resources": {"memory": 1}}, "memory"),
    ],
)
def test_numbers_that_no_cluster_could_grant(asked, name):
    with pytest.raises(ValueError, match=name):
        Request(**asked)


def test_a_request_that_fits_nowhere_is_told_with_what_there_is():
    nodes = [{"CPU": 4.0, "memory": 1e9, "node:10.0.0.1": 1.0}, {"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}]
    Request(num_cpus=8, num_gpus=0.5).check(nodes)
    with pytest.raises(ValueError, match="can ever hold") as refused:
        Request(num_cpus=9, num_gpus=0.5).check(nodes)
    assert "CPU 9, GPU 0.5: its nodes have 2 x (CPU 4, GPU 0); CPU 8, GPU 2. Ask for less" in str(refused.value)
    with pytest.raises(ValueError, match="CPU 8, tpu 0, GPU 2"):  # enough of either, on different nodes
        Request(num_cpus=8, resources={"tpu": 1}).check([{"CPU": 1.0, "tpu": 4.0}, nodes[1]])


@pytest.mark.parametrize(("num_cpus", "threads"), [(0.5, 1), (1, 1), (1.5, 1), (2, 2)])
def test_threads_are_whole_cpus(num_cpus, threads):
    assert Request(num_cpus=num_cpus).threads == threads
