"""What the worker did when, as plain events in bounded memory; always on.

`ring` keeps them, `notes` is the pen of one request, `followed` adds up those whose trace is
sampled, `spans` makes a trace's spans of that, `reading` answers who asks.
"""
