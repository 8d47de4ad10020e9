// Command coredns is CoreDNS with the plugins that a test cluster needs and no other: it builds in a fraction of the time.
package main

import (
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/ready"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

// The order in which a query passes the plugins; the Corefile only switches them on.
var order = []string{"health", "ready", "errors", "cache", "loop", "kubernetes", "forward"}

func init() {
	dnsserver.Directives = order
}

func main() {
	coremain.Run()
}
