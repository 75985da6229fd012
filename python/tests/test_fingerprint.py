"""kiln.fingerprint: ranks that differ are told which space and which key."""

import threading

import kiln
import pytest


def rank(tmp_path, number, **contents):
    """The fingerprint of a rank with a store of its own, that has put these blobs of space triton."""
    with kiln.Service(cache_dir=tmp_path / str(number), hermetic=True) as service:
        for name, content in contents.items():
            kiln.Blobs(service, "triton", "v1").put(name, content)
        return kiln.fingerprint(service)


def checked(*prints):
    """The text that check() raises on each rank, all of which call it at once; None where it raises nothing."""
    everybody = threading.Barrier(len(prints), timeout=60)
    values, out = [None] * len(prints), [None] * len(prints)

    def run(number):
        def gather(value):
            values[number] = value
            everybody.wait()
            seen = list(values)
            everybody.wait()
            return seen

        try:
            prints[number].check(gather)
        except kiln.RanksDiffer as error:
            out[number] = str(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(prints))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return out


def test_equal_ranks_pass(tmp_path):
    prints = [rank(tmp_path, number, a=b"1", b=b"2") for number in range(3)]
    assert prints[0] == prints[1] and len(str(prints[0])) == 32
    assert checked(*prints) == [None] * 3


def test_a_differing_rank_is_told_which_space_and_which_key(tmp_path):
    errors = checked(
        rank(tmp_path, 0, a=b"1", b=b"2"), rank(tmp_path, 1, a=b"1", b=b"2"), rank(tmp_path, 2, a=b"1", b=b"3", c=b"4")
    )
    assert errors[0] == errors[1] == errors[2]
    assert errors[0].splitlines() == [
        "ranks run different code:",
        "rank 2 and rank 0: space triton: differs: b of v1",
        "rank 2 and rank 0: space triton: only rank 2 has it: c of v1",
    ]


def test_keys_that_are_no_text_are_told_apart(tmp_path):
    prints = []
    for number, content in enumerate((b"1", b"2")):
        with kiln.Service(cache_dir=tmp_path / f"s{number}", hermetic=True) as service:
            blobs = kiln.Blobs(service, "triton")
            blobs.put(b"\xfe", content)
            blobs.put(b"\xff", b"equal")
            prints.append(kiln.fingerprint(service))
    assert prints[0].differences(prints[1]) == ["space triton: differs: bytes fe0a"]


def test_many_differences_are_counted(tmp_path):
    (error, _) = checked(rank(tmp_path, 0), rank(tmp_path, 1, **{f"k{i}": b"x" for i in range(20)}))
    assert error.count("only rank 1 has it") == 8
    assert error.endswith("rank 1 and rank 0: 12 more")


def test_torch_gathers_with_its_default_group(tmp_path):
    torch = pytest.importorskip("torch")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        rank(tmp_path, 0, a=b"1").check()
    finally:
        torch.distributed.destroy_process_group()
