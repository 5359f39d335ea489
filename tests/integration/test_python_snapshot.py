"""The Python package where no daemon answers: what resolve() gives from the snapshot file."""

import queue
import shutil
import struct
import time

import pytest
import xxhash

from harness.daemon import wait_until

# One of each kind, in other words than the canonical ones.
PROBLEMS = [
    "fwd,x=1x64x56x56,w=64x64x3x3,pad=1,nhwc,f16",
    " fwd , f16,x=2x64x56x56 , w=64x64x3x3,stride=2,pad=1x1 ",
    "fwd,x=1x64x1x1,w=32x64x1x1,nhwc,f16",  # nchw and nhwc are one
    "fwd,x=4x32x28x28,w=32x1x5x5,pad=2,groups=32",
    "bwd_data,x=2x16x33x17,w=8x16x3x5,pad=0:1x2:3,stride=2x1,dilation=1x2,f16",
    "bwd_filter,x=2x16x32x32,w=8x16x3x3,pad=1,bf16,out=f32",
    "fwd,x=1x8x128,w=8x8x7,pad=3,f32",
    "fwd,x=1x8x128,w=8x8x7,pad=3:2,stride=2,f32",
    "fwd,x=1x8x16x16x16,w=8x8x3x3x3,pad=1,nhwc,f16",
    "fwd,x=1x8x16x16,w=8x8x3x3,xstrides=4096x512x32x2,wstrides=72x9x3x1,ystrides=1568x196x14x1",
    "fwd,x=1x8x16x16,w=8x8x3x3,xstrides=2048x1x128x8,wstrides=72x1x24x8,ystrides=1568x1x112x8,f16",  # is nhwc
    "fwd,x=1x64x14x14,w=64x64x1x1,nhwc,f16,epilogue=add+bias+relu",
    "fwd,x=1x64x14x14,w=64x64x1x1,nhwc,f16,epilogue=bias,mid=f16",
    "fwd,x=1x64x14x14,w=64x64x1x1,nhwc,i8",
    "fwd,x=1x64x14x14,w=64x64x1x1,nhwc,i8,epilogue=bias+relu",
    "fwd,x=1x64x14x14,w=64x64x1x1,nhwc,f64,mode=conv",
    "fwd,x=1x64x14x14,w=64x64x1x1,nhwc,e4m3,out=f16",
    "fwd,x=1x64x14x14,w=64x64x1x1,nhwc,f16,acc=f16,align=4",
]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """What one test made and the others use: a folder, and what the daemon answered."""
    return {"folder": tmp_path_factory.mktemp("snapshot")}


@pytest.fixture
def published(ct, fake_daemon, shelf, tmp_path):
    """A folder with the snapshot of a daemon that has ended, and what it answered."""
    if "answers" not in shelf:
        daemon = fake_daemon().start()
        client = ct.Client(daemon.address)
        assert client.tune(PROBLEMS) == {}
        answers = client.get(PROBLEMS)
        assert all(r.answer for r in answers)
        folder = daemon.state_dir / "snapshot"
        wait_until(lambda: all(r.answer for r in nobody(ct, tmp_path, folder).resolve(PROBLEMS)), 60, "the snapshot")
        daemon.stop()
        shutil.copy(folder / "current.snapshot", shelf["folder"])
        shelf["answers"] = answers
    return shelf["folder"], shelf["answers"]


def nobody(ct, tmp_path, folder, **options):
    return ct.Client(f"unix:{tmp_path}/nobody", snapshot=str(folder), **options)


def test_every_kind_of_problem_has_the_daemons_winner(ct, published, tmp_path):
    folder, answers = published
    start = time.monotonic()
    results = nobody(ct, tmp_path, folder).resolve(PROBLEMS, timeout=3600)
    assert time.monotonic() - start < 600, "it waited although the snapshot has everything"
    for result, answer in zip(results, answers):
        assert result.source == "snapshot" and answer.source == "daemon"
        assert result.winner.text == answer.winner.text, result.problem
        assert result.winner.engine_index == answer.winner.engine_index and result.winner.knobs == answer.winner.knobs
        assert result.winner.workspace_bytes == answer.winner.workspace_bytes
        assert result.winner.median_us == pytest.approx(answer.winner.median_us)
        assert (result.answer.evidence, result.environment.text) == (answer.answer.evidence, answer.environment.text)
        assert result.problem == answer.problem


def test_what_it_does_not_have_is_a_miss_when_the_time_is_up(ct, published, tmp_path):
    folder, _ = published
    unknown, refused = "fwd,x=7x64x56x56,w=64x64x3x3,pad=1,nhwc,f16", "fwd,x=1x64x7x7,w=64x63x3x3"
    client = nobody(ct, tmp_path, folder)
    first, second, third = client.resolve([unknown, PROBLEMS[0], refused], timeout=0.3)
    assert (first.answer, first.miss, first.source) == (None, "unavailable", "")
    assert "not in the snapshot for nvidia-h200" in first.message
    assert second.winner is not None
    assert third.miss == "refused" and "groups: must divide C and K" in third.message
    (aged,) = client.resolve([PROBLEMS[0]], max_age_s=3600, timeout=0.3)
    assert aged.answer is None and "does not say how old its choices are" in aged.message
    (exact,) = client.resolve([PROBLEMS[0]], constraints=ct.Constraints(max_error=1.0), timeout=0.3)
    assert exact.winner is None and "keeps to the constraints; it has no errors, so none keeps to max_error" in exact.message
    (strict,) = nobody(ct, tmp_path, folder, use_snapshot=False).resolve([PROBLEMS[0]], timeout=0.3)
    assert strict.answer is None and "snapshot" not in strict.message


def test_a_stricter_alignment_is_served_and_a_looser_one_is_not(ct, published, tmp_path):
    folder, _ = published
    client = nobody(ct, tmp_path, folder)
    (served,) = client.resolve([PROBLEMS[0] + ",align=64"], timeout=0.3)
    (refused,) = client.resolve([PROBLEMS[0] + ",align=8"], timeout=0.3)
    assert served.winner is not None and refused.winner is None


@pytest.mark.parametrize(
    "edit, why",
    [
        (lambda b: b[:-1], "another length"),
        (lambda b: b[:50], "layout is not sound"),
        (lambda b: b"", "layout is not sound"),
        (lambda b: b[:200] + bytes([b[200] ^ 1]) + b[201:], "the checksum does not match"),
        (lambda b: b[:24] + bytes([b[24] ^ 1]) + b[25:], "the checksum does not match"),
        (lambda b: b[:8] + b"\x01" + b[9:], "another format version"),
        (lambda b: b"X" + b[1:], "is no snapshot"),
    ],
)
def test_a_file_that_is_not_sound_is_as_none(ct, published, tmp_path, edit, why):
    (tmp_path / "current.snapshot").write_bytes(edit(bytearray((published[0] / "current.snapshot").read_bytes())))
    (result,) = nobody(ct, tmp_path, tmp_path).resolve(PROBLEMS[:1], timeout=0.3)
    assert result.answer is None and result.miss == "unavailable" and why in result.message, result.message


def test_a_file_that_took_its_place_is_read(ct, published, tmp_path):
    folder = tmp_path
    client = nobody(ct, tmp_path, folder)
    (before,) = client.resolve(PROBLEMS[:1], timeout=0.3)
    assert before.answer is None and "No such file" in before.message
    shutil.copy(published[0] / "current.snapshot", folder / "current.snapshot")
    assert client.resolve(PROBLEMS[:1], timeout=0.3)[0].winner is not None
    (folder / "current.snapshot").unlink()
    assert client.resolve(PROBLEMS[:1], timeout=0.3)[0].winner is None


def test_the_folder_comes_from_the_environment(ct, published, tmp_path, monkeypatch):
    monkeypatch.setenv("CONVTUNE_SNAPSHOT", str(published[0]))
    (result,) = ct.Client(f"unix:{tmp_path}/nobody").resolve(PROBLEMS[:1], timeout=0.3)
    assert result.source == "snapshot"


def test_a_refresh_says_what_changed_and_only_that(ct, published, tmp_path):
    folder = tmp_path
    seen = queue.Queue()
    with nobody(ct, tmp_path, folder) as client:
        client.start_refresh(PROBLEMS[:2] + ["nonsense"], seen.put, period_s=0.01, timeout=0.01)
        with pytest.raises(queue.Empty):
            seen.get(timeout=0.2)  # nothing could be asked for
        shutil.copy(published[0] / "current.snapshot", folder / "new")
        (folder / "new").rename(folder / "current.snapshot")
        first = seen.get(timeout=60)
        assert [r.problem for r in first] == [r.problem for r in published[1][:2]] and all(r.winner for r in first)
        with pytest.raises(queue.Empty):
            seen.get(timeout=0.2)  # nothing changed
        # Another one takes its place, and a callback that fails does not end it.
        calls = []

        def failing(results):
            calls.append(results)
            if len(calls) == 1:
                raise RuntimeError("the program's own")
            client.stop_refresh()

        client.start_refresh(PROBLEMS[:1], failing, period_s=0.01, timeout=0.01)
        wait_until(lambda: calls, 60, "the first call")
        (folder / "current.snapshot").unlink()
        with pytest.raises(ValueError, match="period_s"):
            client.start_refresh(PROBLEMS, seen.put, period_s=0)
    assert seen.empty()


def test_answers_are_those_of_the_programs_own_environment(ct, published, tmp_path):
    for program, fits in (
        ({"cudnn_version": "9.19.0", "library_configuration": "full", "gpu_model": "NVIDIA H200"}, True),
        ({"cudnn_version": "9.12.0"}, False),
        ({"gpu_model": "NVIDIA L4"}, False),
        ({"gpu_model": "nvidia-h200", "profile": True}, False),
        ({"compute_capability": "8.9"}, False),
    ):
        client = nobody(ct, tmp_path, published[0], program=ct.Environment(**program))
        (result,) = client.resolve(PROBLEMS[:1], timeout=0.3)
        assert (result.winner is not None, result.miss) == (fits, "" if fits else "other_environment"), program
    assert "other environment: the program has cc=8.9; " in result.message
    assert result.message.endswith("has nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full")
    text = published[1][0].environment.text
    assert nobody(ct, tmp_path, published[0], environment=text).resolve(PROBLEMS[:1])[0].winner is not None


def test_a_time_that_was_not_taken_is_none(ct, published, tmp_path):
    from convtune import snapshot

    content = bytearray((published[0] / "current.snapshot").read_bytes())
    at, count = struct.unpack_from("<QQ", content, 64)
    for place in range(count):
        struct.pack_into("<f", content, at + place * 40 + 32, 0.0)
    struct.pack_into("<Q", content, 96, xxhash.xxh3_64_intdigest(bytes(content[112:])))
    struct.pack_into("<Q", content, 104, xxhash.xxh3_64_intdigest(bytes(content[:104])))
    (tmp_path / "current.snapshot").write_bytes(content)
    assert snapshot.Snapshot(str(tmp_path))
    (result,) = nobody(ct, tmp_path, tmp_path).resolve(PROBLEMS[:1], timeout=0.3)
    assert result.winner is not None and result.winner.median_us is None


def test_an_environment_that_it_does_not_have_is_named(ct, published, tmp_path):
    (result,) = nobody(ct, tmp_path, published[0], environment="nvidia-a100").resolve(PROBLEMS[:1], timeout=0.3)
    assert "must be one of: nvidia-h200,cc=9.0" in result.message and "'nvidia-a100'" in result.message


def test_a_snapshot_without_an_environment_says_why(ct, daemons, tmp_path):
    daemon = daemons("--devices", "none").start()
    folder = daemon.state_dir / "snapshot"
    wait_until(lambda: (folder / "current.snapshot").exists(), 10, "the snapshot")
    (result,) = nobody(ct, tmp_path, folder).resolve(PROBLEMS[:1], timeout=0.3)
    assert "current.snapshot: has no environment: convtuned has no device" in result.message, result
