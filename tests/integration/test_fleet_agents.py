"""One agent for each daemon, and each with its own."""

import resource
import signal
import subprocess
from types import SimpleNamespace

import pytest

from harness.daemon import wait_until
from harness.problems import numbered


def last_error(fleet, node):
    return fleet.node(node)["last_error"]


def test_a_second_agent_of_another_node_is_refused_while_the_first_works(fleet, nodes):
    daemon, = nodes(1)
    fleet.release([daemon], numbered(0))
    second = fleet.agent("stranger", daemon)
    said = f"the daemon works with the agent of the node {daemon.node} and refuses that of stranger"
    wait_until(lambda: said in second.log(), 20, "the refusal in the agent's log")
    # The node that goes on says it: the other has no row, or one that gets silent.
    told = "the agent of stranger calls this node's daemon, too, and is refused"
    wait_until(lambda: last_error(fleet, daemon.node) == told, 20, "the refusal in `status`")
    assert f"error of {daemon.node}: {told}" in fleet.cli.ok("status").out
    assert [n["name"] for n in fleet.status()["nodes"]] == [daemon.node]
    assert daemon.log().count(f"warning agent: {said}") == 1, "once, however often it calls"
    with daemon.client() as client:
        assert client.fleet.GetFleetState(observer=True).release == 1


@pytest.mark.long
def test_a_node_that_was_renamed_is_taken_once_its_former_agent_is_gone(fleet, nodes):
    daemon, = nodes(1)
    wait_until(lambda: "connected as" in daemon.agent.log(), 20, "a connection")
    daemon.agent.kill()
    renamed = fleet.agent("renamed", daemon)
    wait_until(lambda: "refuses that of renamed" in renamed.log(), 20, "the refusal")
    wait_until(lambda: "connected as renamed" in renamed.log(), 150, "the other name")
    assert "all is well again" in renamed.log()


def test_agents_that_talk_to_each_others_daemons_say_so(fleet, fake_daemon):
    """As two --address that were exchanged."""
    one, two = (fake_daemon("--node", name).start() for name in ("n1", "n2"))
    for name, daemon, its in (("n1", two, "n2"), ("n2", one, "n1")):
        agent = fleet.agent(name, daemon)
        said = f"the daemon's --node is {its} and this agent's is {name}: give both one name, or the agent the --address of {name}'s daemon"
        wait_until(lambda: name in {n["name"] for n in fleet.status()["nodes"]}, 20, "the node")
        wait_until(lambda: last_error(fleet, name) == said, 20, "the warning in `status`")
        assert said in agent.log()
        assert f"error of {name}: {said}" in fleet.cli.ok("status").out
        agent.kill()


def test_an_agents_log_that_reached_the_file_size_limit_does_not_end_it(fleet):
    agent = fleet.agent("alone", SimpleNamespace(address="unix:/nowhere/convtune.sock"))
    wait_until(lambda: "/nowhere/convtune.sock" in agent.log(), 20, "the first line")
    limit = agent.log_path.stat().st_size
    resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    agent.process.send_signal(signal.SIGHUP)  # has a line
    with pytest.raises(subprocess.TimeoutExpired):
        agent.process.wait(2)
    resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    agent.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "lines of this log were lost" in agent.log(), 20, "the line that says what is lost")
