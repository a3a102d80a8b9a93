//go:build tools

package metrics

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
