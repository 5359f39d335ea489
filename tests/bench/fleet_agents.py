#!/usr/bin/env python3
"""How many agents does one PostgreSQL bear? Agents beside daemons that do nothing, all on this machine.

    tests/bench/fleet_agents.py [--agents 500] [--idle 60]     ($CONVTUNE_BUILD_DIR, default build)

Agents, PostgreSQL and what they say to each other are the real ones, with the agents' own settings. The daemons are one
process that answers an agent's questions (convtune-bench-fleet-nodes), so their CPU and memory are not those of daemons.
"""

import argparse
import datetime
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

from harness.many_agents import ManyAgents, cpu_seconds, memory_mib  # noqa: E402
from harness.postgres import Server, why_not  # noqa: E402


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--idle", type=float, default=60)
    options = parser.parse_args()
    if why_not():
        sys.exit(why_not())
    programs = pathlib.Path(os.environ.get("CONVTUNE_BUILD_DIR", HERE.parents[1] / "build")).resolve() / "bin"
    count = options.agents
    server = Server(settings=(f"max_connections={count + 20}",))
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, {count} agents, max_connections={count + 20}", flush=True)
    agents = ManyAgents(programs, server, count)
    try:
        print(f"all connected {agents.wait_connected(600):.1f} s after the last one's start", flush=True)
        time.sleep(15)  # past everybody's first turn
        pids = [agent.pid for agent in agents.agents]
        before, postgres_before, start = cpu_seconds(pids), cpu_seconds(agents.postgres_pids()), time.monotonic()
        most = 0
        while time.monotonic() - start < options.idle:
            most = max(most, agents.connections())
            time.sleep(1)
        took = time.monotonic() - start
        print(f"idle: {most} connections at most; CPU of a core: agents {(cpu_seconds(pids) - before) / took:.2f}, "
              f"PostgreSQL {(cpu_seconds(agents.postgres_pids()) - postgres_before) / took:.2f}; "
              f"memory: {memory_mib(pids) / count:.1f} MiB an agent, {memory_mib(agents.postgres_pids()):.0f} MiB PostgreSQL",
              flush=True)  # fmt: skip
        back = agents.restart_postgres(600)
        windows = [sum(1 for at in back if low <= at < low + 0.1) for low in (i / 10 for i in range(int(back[-1] * 10) + 1))]
        print(f"PostgreSQL restarted: the first agent back after {back[0]:.2f} s, half after {percentile(back, 0.5):.2f} s, "
              f"the last after {back[-1]:.2f} s; at most {max(windows)} in a tenth of a second", flush=True)  # fmt: skip
        time.sleep(15)
        before, postgres_before, start = cpu_seconds(pids), cpu_seconds(agents.postgres_pids()), time.monotonic()
        delivered = agents.deliver(600)
        took = time.monotonic() - start
        print(f"one tuning each: delivered after {delivered:.1f} s; CPU seconds: "
              f"agents {cpu_seconds(pids) - before:.1f}, PostgreSQL {cpu_seconds(agents.postgres_pids()) - postgres_before:.1f}",
              flush=True)  # fmt: skip
    finally:
        agents.close()
        server.close()


if __name__ == "__main__":
    main()
