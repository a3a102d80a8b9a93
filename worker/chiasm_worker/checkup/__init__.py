"""Looks at a running engine for what is wrong with it; what it finds are sentences for a person.

shapes, books, drift    what is compared, pure
watcher, sample, reference, visibility, stored    how it is read
judging                 readings -> findings, pure
checkup                 the order of it all
"""
