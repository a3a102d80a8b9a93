"""What ahead-of-time compilation proves: resources, loads, instructions, issue."""
