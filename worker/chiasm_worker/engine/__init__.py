"""Runs model steps: arena, runner, sampler, detokenizer. Must not know HTTP."""
