"""Each scenario once undisturbed and once for each write in a pass that ended in another state, the
operator killed before that write: how many transitions, and how many end states differ.

Run as a program it prints one JSON object; bench/operator_chaos.py does. No cluster is needed.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from tests.operator.rollout.made_up.scenarios import SCENARIOS, told
from tests.operator.rollout.made_up.world import World


def main() -> None:
    logging.disable(logging.CRITICAL)
    transitions = kills = divergent = orphans = 0
    for name in SCENARIOS:
        calm = told(name, World())
        end = calm.end_state()
        orphans += len(calm.orphans)
        transitions += len(calm.transitions)
        for write in sorted({number for writes in calm.transitions for number in writes}):
            killed = told(name, World(kill_before=write))
            kills += 1
            divergent += killed.end_state() != end
            orphans += len(killed.orphans)
        print(f"{name}: {len(calm.transitions)} transitions", file=sys.stderr, flush=True)
    figures = {
        "simulated_scenarios": len(SCENARIOS),
        "simulated_transitions": transitions,
        "simulated_kills": kills,
        "simulated_divergent_end_states": divergent,
        "simulated_orphans": orphans,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
