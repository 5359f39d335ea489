"""`convtune advise`: one convolution in other layouts and types, held against what the GPU can do."""

import csv
import io

from harness.fakes import script

ONE = "fwd,x=8x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"
PROBES = 6  # for f32, f16 and bf16: 2 + 1 + 1 of arithmetic, 2 of memory


def test_rows_are_held_against_probes_of_the_card(fake_daemon, cli, tmp_path):
    log = tmp_path / "requests"
    daemon = fake_daemon().start(env=script(log=str(log)))
    run = cli(daemon)
    advice = run.ok("advise", ONE, "--json").json()
    # Two layouts of three types, and f32 once more without TF32.
    assert len(advice["variants"]) == 8
    assert advice["variants"][0]["asked"] and advice["variants"][0]["speedUp"] == 1
    ceilings = advice["ceilings"]
    assert {(c["dtype"], c["tf32Forbidden"]) for c in ceilings["tflops"]} == {
        ("f32", False), ("f32", True), ("f16", False), ("bf16", False)}
    most = {c["dtype"]: c["value"] for c in ceilings["tflops"] if not c["tf32Forbidden"]}
    for row in advice["variants"]:
        if not row["tflops"]:  # the fake has nothing that is right
            assert row["bound"] == "-"
            continue
        word, share = row["bound"].split()
        assert word in ("compute", "memory") and share.endswith("%")
        assert row["gbytesPerSecond"] <= ceilings["gbytesPerSecond"]
        if word == "compute" and not row["tf32Forbidden"]:
            dtype = row["problem"].rsplit(",", 1)[1]
            assert abs(row["tflops"] / most.get(dtype, most["f32"]) * 100 - float(share[:-1])) < 1
    opened = [line for line in log.read_text().splitlines() if line.startswith("open ")]
    assert len(opened) == PROBES + 6

    # The probes are tunings like others: none is made twice.
    again = run.ok("advise", ONE)
    assert len([line for line in log.read_text().splitlines() if line.startswith("open ")]) == len(opened)
    assert "BOUND: the nearest to the GPU's ceilings, measured by probes; memory " in again.out
    assert len(list(csv.DictReader(io.StringIO(run.ok("advise", ONE, "--csv").out)))) == 8


def test_one_probe_of_memory_is_enough(fake_daemon, cli):
    daemon = fake_daemon().start(
        env=script(fault="illegal", where="measure", problem="fwd,x=128x64x112x112,w=64x64x1x1,nhwc,f16"))
    run = cli(daemon)
    advice = run.ok("advise", ONE, "--json").json()
    assert advice["ceilings"]["gbytesPerSecond"] > 0


def test_without_times_nothing_is_probed(daemons, cli, worker):
    daemon = daemons("--devices", "none", "--profile", "nvidia-h200", "--worker", worker).start()
    run = cli(daemon)
    advised = run("advise", ONE, "--dtypes", "f16")
    assert "Nothing was timed" in advised.out and "BOUND" in advised.out.splitlines()[0]
    assert "probing" not in advised.err
    assert len(run.ok("list", "--json").json()["tunings"]) == 2
