"""Triton kernels, one folder each: plain truth, kernel, cases, and the maths with its traffic.

    <op>/reference.py   in torch, as plain as can be
    <op>/triton.py      the same functions on a GPU; imported only where Triton is wanted
    <op>/cases.py       what both are held to, and how the kernels are built for each target
    <op>/README.md      what it computes and which bytes it must move

A new operation is a new folder; tests and benchmarks find it by its cases.py.
"""
