"""How latency grows with the ratio of visual to text tokens, and what drives it.

fitting     points -> curves with their error, pure
drivers     seconds with and without a stage -> shares, pure
record      what was found, as a file and as a recording rule
stages, measuring    the engine that is measured
drawing     the picture
"""
