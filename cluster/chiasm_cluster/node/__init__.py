"""What runs in a cluster: certificates, the control plane's parts, each node's parts, DNS."""
