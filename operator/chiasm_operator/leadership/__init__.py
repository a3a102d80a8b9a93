"""Which of several operators writes, and that no other one does.

`fence` is what every write passes, `lease` decides from what was read, `keeper` asks the API
server.
"""
