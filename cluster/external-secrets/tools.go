//go:build tools

package externalsecrets

import _ "github.com/external-secrets/external-secrets"
