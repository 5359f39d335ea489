"""Many agents beside one PostgreSQL: a connection each, and not all back at the same moment after its restart.

CONVTUNE_TEST_LONG=1 takes 500 of them.
"""

import os

import pytest

from conftest import PROGRAMS
from harness import postgres
from harness.many_agents import ManyAgents

pytestmark = pytest.mark.ci

AGENTS = 500 if os.environ.get("CONVTUNE_TEST_LONG") else 40
TIMEOUT_S = 600 if AGENTS == 500 else 90


@pytest.fixture
def agents():
    reason = postgres.why_not()
    if reason:
        pytest.skip(reason)
    if not (PROGRAMS / "convtune-fleet").exists():
        pytest.skip("convtune-fleet was not built (deploy/install-deps brings libpq)")
    server = postgres.Server(settings=(f"max_connections={AGENTS + 20}",))
    made = ManyAgents(PROGRAMS, server, AGENTS)
    yield made
    made.close()
    server.close()


def test_agents_come_back_one_by_one_and_deliver(agents):
    agents.wait_connected(TIMEOUT_S)
    back = agents.restart_postgres(TIMEOUT_S)
    assert agents.connections() == AGENTS
    # Within five seconds, at random; PostgreSQL and two cores need their own time.
    assert back[-1] - back[0] > 3, back
    crowd = max(sum(1 for at in back if low <= at < low + 0.25) for low in back)
    assert crowd <= AGENTS / 2, (crowd, back)
    delivered = agents.deliver(TIMEOUT_S)
    print(f"{AGENTS} agents: {back[0]:.2f} to {back[-1]:.2f} s, {crowd} in a quarter second; {delivered:.1f} s")
