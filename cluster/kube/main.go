// Command kube is every program of a small Kubernetes in one binary. It behaves as the program
// whose name it is called by (a symbolic link's name counts), so that the large packages these
// programs share are compiled, stored and loaded once.
//
// It adds nothing of its own: each entry hands over to the upstream command unchanged.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"           // client authentication plugins
	_ "k8s.io/component-base/logs/json/register"          // the JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version metric

	"github.com/coredns/coredns/coremain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs maps the name a program is called by to the upstream command; each returns the exit
// status.
var programs = map[string]func() int{
	"coredns":                 func() int { coremain.Run(); return 0 },
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"helm":                    helm,
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllers.NewControllerManagerCommand()) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 kubectl,
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
}

// names returns the programs' names in order.
func names() []string {
	found := make([]string, 0, len(programs))
	for name := range programs {
		found = append(found, name)
	}
	slices.Sort(found)
	return found
}

func main() {
	name := filepath.Base(os.Args[0])
	program, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%q is not a program of this binary; call it through a link named one of: %s.\n",
			name, strings.Join(names(), ", "))
		os.Exit(2)
	}
	os.Exit(program())
}
