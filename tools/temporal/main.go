// Command temporal is a real Temporal server in one process, for tests and
// local trials: frontend, history, matching and worker on SQLite, all on loopback.
// It prints "listening on ADDRESS" when it can be used.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
)

const namespace = "default"

func main() {
	port := flag.Int("port", 7233, "frontend port on 127.0.0.1; 0: a free one")
	file := flag.String("db", "", "SQLite file, made if it is not there; none: one that is removed at the end")
	level := flag.String("log", "error", "debug, info, warn or error")
	held := flag.Bool("held", false, "end when standard input ends, as it does with the process that started this one")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := serve(*port, *file, *level, *held); err != nil {
		fmt.Fprintln(os.Stderr, "temporal:", err)
		os.Exit(1)
	}
}

func serve(port int, file, level string, held bool) error {
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	if held {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop <- os.Interrupt
		}()
	}
	if file == "" {
		dir, err := os.MkdirTemp("", "temporal")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		file = filepath.Join(dir, "temporal.db")
	}
	hosts, err := hostsFrom(port)
	if err != nil {
		return err
	}
	db, err := database(file)
	if err != nil {
		return err
	}
	server, err := newServer(configuration(hosts, db), hosts, level)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	fmt.Println("listening on", hosts[primitives.FrontendService])
	<-stop
	return server.Stop()
}

// services in the order of their ports.
var services = []primitives.ServiceName{
	primitives.FrontendService, primitives.HistoryService, primitives.MatchingService, primitives.WorkerService, httpService,
}

const httpService primitives.ServiceName = "http" // the frontend's second port

// hostsFrom finds a free port for each service. Another process may take one
// before it is used: the server then does not start, and can be tried again.
func hostsFrom(port int) (map[primitives.ServiceName]string, error) {
	hosts := map[primitives.ServiceName]string{}
	for i, service := range services {
		if i > 0 {
			port = 0
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil, err
		}
		defer l.Close() // when all are found, so that no two are the same
		hosts[service] = l.Addr().String()
	}
	return hosts, nil
}

func database(file string) (*config.SQL, error) {
	db := &config.SQL{
		PluginName: sqliteplugin.PluginName, DatabaseName: file,
		ConnectAttributes: map[string]string{"mode": "rwc", "journal_mode": "wal", "synchronous": "normal"},
	}
	if _, err := os.Stat(file); os.IsNotExist(err) {
		if err := sqlite.SetupSchema(db); err != nil {
			return nil, fmt.Errorf("make the database: %w", err)
		}
	}
	ns, err := sqlite.NewNamespaceConfig("active", namespace, false, nil)
	if err != nil {
		return nil, err
	}
	if err := sqlite.CreateNamespaces(db, ns); err != nil && !strings.Contains(err.Error(), "UNIQUE") {
		return nil, fmt.Errorf("make the namespace: %w", err)
	}
	return db, nil
}

func configuration(hosts map[primitives.ServiceName]string, db *config.SQL) *config.Config {
	port := func(service primitives.ServiceName) int {
		addr, err := net.ResolveTCPAddr("tcp", hosts[service])
		if err != nil {
			panic(err) // we made it
		}
		return addr.Port
	}
	c := &config.Config{Services: map[string]config.Service{}}
	for _, service := range services[:4] {
		rpc := config.RPC{GRPCPort: port(service), BindOnIP: "127.0.0.1"}
		if service == primitives.FrontendService {
			rpc.HTTPPort = port(httpService)
		}
		c.Services[string(service)] = config.Service{RPC: rpc}
	}
	c.Global.Membership = config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: "127.0.0.1"}
	c.Persistence = config.Persistence{
		DefaultStore: "sqlite", VisibilityStore: "sqlite", NumHistoryShards: 1,
		DataStores: map[string]config.DataStore{"sqlite": {SQL: db}},
	}
	c.ClusterMetadata = &cluster.Config{
		FailoverVersionIncrement: 10, MasterClusterName: "active", CurrentClusterName: "active",
		ClusterInformation: map[string]cluster.ClusterInformation{"active": {
			Enabled: true, InitialFailoverVersion: 1,
			RPCAddress: hosts[primitives.FrontendService], HTTPAddress: hosts[httpService],
		}},
	}
	c.DCRedirectionPolicy.Policy = "noop"
	c.Archival.History.State, c.Archival.Visibility.State = "disabled", "disabled"
	c.NamespaceDefaults.Archival.History.State, c.NamespaceDefaults.Archival.Visibility.State = "disabled", "disabled"
	c.PublicClient.HostPort = hosts[primitives.FrontendService]
	return c
}

func newServer(c *config.Config, hosts map[primitives.ServiceName]string, level string) (temporal.Server, error) {
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Level: level}))
	authorizer, err := authorization.GetAuthorizerFromConfig(&c.Global.Authorization)
	if err != nil {
		return nil, err
	}
	claims, err := authorization.GetClaimMapperFromConfig(&c.Global.Authorization, logger)
	if err != nil {
		return nil, err
	}
	local := map[primitives.ServiceName]static.Hosts{} // found without a gossip protocol
	for _, service := range services[:4] {
		local[service] = static.SingleLocalHost(hosts[service])
	}
	return temporal.NewServer(
		temporal.WithConfig(c),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(local),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorizer),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return claims }),
		temporal.WithDynamicConfigClient(dynamicconfig.StaticClient{
			// What is added is found at once.
			dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): true,
		}),
	)
}
