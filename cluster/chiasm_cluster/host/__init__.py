"""What a cluster takes from the machine it runs on: network, cgroups, kernel settings, packages."""
