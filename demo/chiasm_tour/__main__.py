"""`python -m chiasm_tour demo|ask|down`, called by make."""

from __future__ import annotations

import argparse
import os
import sys

from chiasm_tour import tour
from chiasm_tour.clusters import chosen
from chiasm_tour.console import TourError


def main() -> int:
    """Run one command; 1 when it could not be done, after a sentence on standard error."""
    parser = argparse.ArgumentParser(prog="chiasm_tour", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="bring everything up and ask three questions")
    commands.add_parser("down", help="remove everything that demo made")
    question = commands.add_parser("ask", help="ask about one picture")
    question.add_argument("--image", required=True)
    question.add_argument("--question", required=True)
    arguments = parser.parse_args()
    try:
        cluster = chosen(
            os.environ.get("CLUSTER") or "local", os.environ.get("REGISTRY", "").rstrip("/")
        )
        match arguments.command:
            case "demo":
                tour.demo(cluster)
            case "ask":
                tour.ask_one(cluster, arguments.image, arguments.question)
            case "down":
                tour.down(cluster)
    except TourError as error:
        print(f"{arguments.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\n{arguments.command}: stopped; make down removes what runs.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
