"""Problems whose sizes are known at run time only: lists and ranges, from Python and on the command line."""

import pytest

from harness import python_package

OPEN = "fwd,x=[1,4]x8x[16..48/16]x[=],w=8x8x3x3,pad=1,nhwc,f16"
CLOSED = [f"fwd,x={n}x8x{size}x{size},w=8x8x3x3,pad=1,nhwc,f16" for n in (1, 4) for size in (16, 32, 48)]


def test_warm_takes_open_sizes(ct, fake_daemon, tmp_path):
    assert ct.expand(OPEN) == CLOSED
    client = ct.Client(fake_daemon().start().address)
    first = ct.warm(CLOSED[:2], client)
    assert first.tuned == 2
    summary = ct.warm([OPEN, CLOSED[0]], client)
    assert (summary.problems, summary.hits, summary.tuned) == (6, 2, 4)
    with pytest.raises(ct.ModelError, match=r"x: must go up in steps from 1, is '9\.\.8'"):
        ct.warm("fwd,x=1x8x[9..8]x9,w=8x8x3x3", client)
    listed = tmp_path / "model.txt"
    listed.write_text(f"# sizes of requests\n{OPEN}\n")
    run = python_package.run("-m", "convtune", "warm", listed, "--address", client.address)
    assert run.returncode == 0 and "6 problems: 6 had an answer" in run.stdout, run
    listed.write_text(f"{CLOSED[0]}\nfwd,x=1x8x[2,16]x16,w=8x8x3x3\n")
    run = python_package.run("-m", "convtune", "warm", listed, "--address", client.address)
    assert run.returncode == 2 and "model.txt:2: x, w: must leave an output" in run.stderr, run


def test_the_command_line_takes_open_sizes(fake_daemon, cli, tmp_path):
    run = cli(fake_daemon().start())
    listed = tmp_path / "model.txt"
    listed.write_text(f"{OPEN}\n")
    assert run.ok("warm", listed, "--json").json()["tuned"] == 6
    rows = run.ok("get", OPEN, "--json").json()["results"]
    assert [row["problemText"].split(",")[1] for row in rows] == [text.split(",")[1] for text in CLOSED]
    # Batches stand for the list's own.
    listed.write_text(f"{CLOSED[0]}\n")
    assert run.ok("warm", listed, "--batch", "1,4", "--json").json()["hits"] == 2
    assert run.ok("warm", listed, "--batch", "1..7/3", "--json").json()["problems"] == 3
    refused = run("get", "fwd,x=1x8x[2,16]x16,w=8x8x3x3")
    assert refused.code == 2 and "in fwd,x=1x8x2x16,w=8x8x3x3" in refused.err, refused
