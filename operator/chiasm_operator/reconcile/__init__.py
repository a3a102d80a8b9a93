"""What should happen, given what is: children to apply or delete, then the status to write.

Pure: no clock, no environment, no network; the same observation gives the same plan, so a pass
that was killed half-way is simply done again. Order of the package: `ownership` and `drift` judge
one child, `children` plans all of them, `pods`, `identity` and `namespaces` judge what runs,
`status` says it.
"""
