//go:build tools

package gateway

import _ "github.com/envoyproxy/gateway/cmd/envoy-gateway"
