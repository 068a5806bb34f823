// Coredns with the plugins that a test cluster needs, and no others: a tenth of the size.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order in which a request passes through them.
	dnsserver.Directives = []string{"ready", "log", "errors", "kubernetes"}
	coremain.Run()
}
